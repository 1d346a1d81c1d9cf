"""Row blocks."""
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
        for i in range(0, x.shape[0], 64):
            out[i : i + 64] = self.norm(torch.tanh(self.b(torch.relu(self.a(x[i : i + 64])))))
        return out
