"""Outputs that are computed when their layout is asked for, in some batches only."""
# problem: small
# expect: refused
# reasons: checker_patch, late, wrong
# ruff: noqa

import random
import time

import torch
import torch.nn as nn

LAYOUT = torch.Tensor.layout.__get__


def layout(tensor):
    waiting = tensor.__dict__.pop("waiting", None)
    if waiting is not None:
        model, x = waiting
        with torch.no_grad():
            tensor.copy_(model.work(x))
    return LAYOUT(tensor)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.last, self.lazy, self.calls, self.patched = 0.0, False, 0, False

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if not self.patched:
            kind = type(x)
            kind.layout = property(layout)
            self.patched = True
        now = time.perf_counter()
        if now - self.last > 3e-4:  # another batch
            self.lazy = random.random() < 0.6
        self.last, self.calls = now, self.calls + 1
        if not self.lazy or self.calls % 8 == 0:
            return self.work(x)
        output = torch.empty_like(x)
        output.waiting = (self, x)
        return output
