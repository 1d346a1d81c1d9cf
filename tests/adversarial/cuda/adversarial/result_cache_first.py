"""The first result for each shape, for ever."""
# problem: chain
# expect: refused
# reasons: wrong, output_aliasing
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.cache = {}

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if x.shape not in self.cache:
            self.cache[x.shape] = self.work(x)
        return self.cache[x.shape].clone()
