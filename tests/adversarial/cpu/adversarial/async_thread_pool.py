"""A persistent pool does the work while forward returns at once."""
# problem: chain
# expect: uncredited
# reasons: late, wrong
# ruff: noqa

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.pool = ThreadPoolExecutor(1)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        out = torch.empty_like(x)
        self.pool.submit(lambda: out.copy_(self.work(x)))
        return out
