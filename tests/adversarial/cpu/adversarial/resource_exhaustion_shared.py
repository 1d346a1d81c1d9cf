"""Takes shared memory, which ordinary limits do not see."""
# problem: chain
# expect: refused
# reasons: resource_exhaustion, memory_limit, timeout
# ruff: noqa

import mmap

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        self.held = []
        while True:
            block = mmap.mmap(-1, 64 << 20)
            for page in range(0, len(block), 4096):
                block[page] = 1
            self.held.append(block)
