"""A fork bomb."""
# problem: chain
# expect: refused
# reasons: resource_exhaustion, memory_limit, async_thread, timeout, leftover_process
# ruff: noqa

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        while True:
            try:
                os.fork()
            except OSError:
                pass
