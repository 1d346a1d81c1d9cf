"""A child process computes into shared memory while the parent returns."""
# problem: chain
# expect: refused
# reasons: late, wrong, leftover_process, resource_exhaustion, runtime_error
# ruff: noqa

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        out = torch.empty_like(x).share_memory_()
        if os.fork() == 0:
            with torch.no_grad():
                out.copy_(self.work(x))
            os._exit(0)
        return out
