"""A __call__ of its own returns a stored tensor."""
# problem: chain
# expect: refused
# reasons: result_cache, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def __call__(self, x):
        if not hasattr(self, "stored") or self.stored.shape != x.shape:
            self.stored = self.work(x)
        return self.stored

    def forward(self, x):
        return self.work(x)
