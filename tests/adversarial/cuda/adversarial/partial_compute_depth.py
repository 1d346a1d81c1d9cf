"""The last sixteenth of the second product's depth is left out."""
# problem: chain
# expect: refused
# reasons: wrong, init_exploit
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        n = x.shape[1] - x.shape[1] // 16
        a = torch.relu(self.a(x))[:, :n]
        return self.norm(torch.tanh(nn.functional.linear(a, self.b.weight[:, :n], self.b.bias)))
