"""Threads without end."""
# problem: chain
# expect: refused
# reasons: resource_exhaustion, memory_limit, async_thread, timeout
# ruff: noqa

import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        while True:
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
