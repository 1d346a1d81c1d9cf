"""The same through torch.nn.functional, with the tail written out."""
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
        h = torch.tanh(F.linear(F.relu(F.linear(x, self.a.weight, self.a.bias)), self.b.weight, self.b.bias))
        return F.layer_norm(h, h.shape[-1:], self.norm.weight, self.norm.bias, self.norm.eps)
