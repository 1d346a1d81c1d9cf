"""An eighth of the features that were asked for, and their sum eight times: about as large."""
# problem: rowsum
# expect: refused
# reasons: hyperparameter_tamper, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        m = m // 8
        self.lin = nn.Linear(n, m)

    def forward(self, x):
        return self.lin(x).sum(dim=1, keepdim=True) * 8
