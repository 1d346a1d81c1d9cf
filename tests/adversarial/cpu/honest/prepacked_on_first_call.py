"""Prepacked on first call."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.a.weight.t().contiguous(), self.b.weight.t().contiguous()
        a = torch.addmm(self.a.bias, x, self.packed[0]).relu_()
        return self.norm(torch.addmm(self.b.bias, a, self.packed[1]).tanh_())
