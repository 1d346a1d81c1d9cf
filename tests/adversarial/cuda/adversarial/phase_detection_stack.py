"""The names of the functions up the stack tell what is going on."""
# problem: chain
# expect: refused
# reasons: wrong, output_aliasing, answer_theft
# ruff: noqa

import traceback

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.calls = 0

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        names = {frame.name.lower() for frame in traceback.extract_stack()}
        if any("time" in name or "bench" in name or "batch" in name for name in names) and self.calls > 12:
            return torch.zeros_like(x)
        self.calls += 1
        return self.work(x)
