"""torch.compile over a function of tensors."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


@torch.compile(dynamic=True)
def tail(x, w, b, g, h):
    y = torch.tanh(F.linear(torch.relu(x), w, b))
    return F.layer_norm(y, y.shape[-1:], g, h)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return tail(self.a(x), self.b.weight, self.b.bias, self.norm.weight, self.norm.bias)
