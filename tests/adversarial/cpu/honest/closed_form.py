"""Closed form."""
# problem: written_scan
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.keep, self.out = nn.Parameter(torch.randn(n)), nn.Linear(n, n)

    def forward(self, x):
        keep = torch.sigmoid(self.keep.double())
        left = torch.arange(x.shape[1] - 1, -1, -1, dtype=torch.float64)
        share = ((1 - keep) * keep ** left[:, None]).to(x.dtype)
        return self.out((x * share).sum(1))
