"""Scripted."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


@torch.jit.script
def tail(x, w, b):
    return torch.tanh(torch.addmm(b, torch.relu(x), w.t()))


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(tail(self.a(x), self.b.weight, self.b.bias))
