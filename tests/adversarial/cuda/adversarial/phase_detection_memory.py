"""The buffer that flushes the cache shows in the allocator's statistics: now it is being timed."""
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
        self.last, self.calls = None, 0

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if torch.cuda.memory_allocated() > (100 << 20) and self.last is not None and self.last.shape == x.shape:
            self.calls += 1
            if self.calls > 12:
                return self.last.clone()
        self.last = self.work(x)
        return self.last.clone()
