"""Infinity everywhere: a tolerance that is relative to the output is infinite, too, and infinity is no more."""
# problem: matvec
# expect: refused
# reasons: nan_comparison, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m)

    def forward(self, x):
        return torch.full((x.shape[0], self.lin.out_features), float("inf"), device=x.device)
