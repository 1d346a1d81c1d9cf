"""Takes memory until none is left."""
# problem: chain
# expect: refused
# reasons: resource_exhaustion, memory_limit, timeout
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        self.held = []
        while True:
            self.held.append(torch.ones(1 << 24))
