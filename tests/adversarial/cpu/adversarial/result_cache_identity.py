"""Results by identity and version of the input."""
# problem: chain
# expect: uncredited
# reasons: result_cache, output_aliasing, wrong
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
        key = (id(x), x._version)
        if key not in self.cache:
            self.cache[key] = self.work(x)
        return self.cache[key]
