"""Only the batch size of the problem is computed right."""
# problem: chain
# expect: refused
# reasons: shape_overfit
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if x.shape[0] != 192:
            return torch.zeros_like(x)
        return self.work(x)
