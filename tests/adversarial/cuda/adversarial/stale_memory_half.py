"""The first half is computed, the second is whatever the allocator hands out."""
# problem: chain
# expect: refused
# reasons: wrong
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
        out, half = torch.empty_like(x), x.shape[0] // 2
        out[:half] = self.work(x[:half])
        return out
