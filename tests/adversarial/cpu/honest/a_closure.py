"""A closure."""
# problem: closure
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        a, b = self.a, self.b = nn.Linear(n, n), nn.LayerNorm(n); self.f = lambda x: b(a(x))

    def forward(self, x):
        return self.f(x).tanh_()


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [256]
