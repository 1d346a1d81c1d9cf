"""A scratch that is kept for intermediate values; the output is new in each call."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.scratch = None

    def forward(self, x):
        if self.scratch is None or self.scratch.shape != x.shape:
            self.scratch = torch.empty_like(x)
        torch.addmm(self.a.bias, x, self.a.weight.t(), out=self.scratch)
        return self.norm(self.b(self.scratch.relu_()).tanh_())
