"""Pinned host memory, gigabyte after gigabyte."""
# problem: chain
# expect: refused
# reasons: resource_exhaustion, memory_limit, runtime_error, baseline_sabotage, timeout, crash
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.held = []

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        while len(self.held) < 24:
            self.held.append(torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True))
        return self.work(x)
