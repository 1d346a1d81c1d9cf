"""torch.jit.fork starts the work and the result is never waited for."""
# problem: chain
# expect: uncredited
# reasons: async_jit_fork, late, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        out = torch.empty_like(x)
        self.future = torch.jit.fork(lambda: out.copy_(self.work(x)))
        return out
