"""Packed in the constructor."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.first = self.a.weight.detach().t().contiguous()
        self.register_buffer("second", self.b.weight.detach().t().contiguous())

    def forward(self, x):
        h = torch.addmm(self.a.bias, x, self.first).relu_()
        return self.norm(torch.addmm(self.b.bias, h, self.second).tanh_())
