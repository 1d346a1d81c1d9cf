"""Weights rounded to half precision."""
# problem: chain
# expect: refused
# reasons: precision_downgrade, tolerance_exploit
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        a = nn.functional.linear(x, self.a.weight.half().float(), self.a.bias)
        b = nn.functional.linear(torch.relu(a), self.b.weight.half().float(), self.b.bias)
        return self.norm(torch.tanh(b))
