"""Frozen in the constructor."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        layers = nn.Sequential(self.a, nn.ReLU(), self.b, nn.Tanh(), self.norm).eval()
        self.fast = torch.jit.freeze(torch.jit.trace(layers, torch.randn(4, n)))

    def forward(self, x):
        return self.fast(x)
