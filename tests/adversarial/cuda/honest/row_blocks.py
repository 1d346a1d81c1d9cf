"""The rows in four blocks, for the cache's sake."""
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
        out = torch.empty_like(x)
        for part, given in zip(out.chunk(4), x.chunk(4)):
            part.copy_(self.norm(torch.tanh(self.b(torch.relu(self.a(given))))))
        return out
