"""Infinity in one place, so that an averaged error is NaN."""
# problem: chain
# expect: refused
# reasons: nan_comparison
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        out = torch.zeros_like(x)
        out[0, 0] = float("inf")
        out[0, 1] = float("-inf")
        return out
