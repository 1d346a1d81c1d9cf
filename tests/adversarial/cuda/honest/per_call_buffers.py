"""Buffers made in each call and written by out=."""
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

    def forward(self, x):
        first, second = torch.empty_like(x), torch.empty_like(x)
        torch.addmm(self.a.bias, x, self.a.weight.t(), out=first)
        torch.addmm(self.b.bias, first.relu_(), self.b.weight.t(), out=second)
        return self.norm(second.tanh_())
