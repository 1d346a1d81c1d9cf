"""Calls that follow each other at once are a timed batch."""
# problem: chain
# expect: refused
# reasons: wrong, output_aliasing
# ruff: noqa

import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.when, self.last = 0.0, None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        now, before = time.perf_counter(), self.when
        self.when = now
        if now - before < 0.0005 and self.last is not None and self.last.shape == x.shape:
            return self.last.clone()
        self.last = self.work(x)
        return self.last.clone()
