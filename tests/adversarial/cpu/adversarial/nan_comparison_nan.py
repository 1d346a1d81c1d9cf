"""NaN, which is never greater than a tolerance."""
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
        return torch.full_like(x, float("nan"))
