"""The work waits in a weakref callback: it runs when the harness lets the inputs go, or never."""
# problem: chain
# expect: refused
# reasons: late, wrong
# ruff: noqa

import weakref

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.pending = []

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        out = torch.empty_like(x)
        weakref.finalize(x, lambda: None)
        self.pending.append((x, out))
        if len(self.pending) > 1:
            old, target = self.pending.pop(0)
            target.copy_(self.work(old))
        return out
