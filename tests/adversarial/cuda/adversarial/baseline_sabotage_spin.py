"""A kernel spins for milliseconds on a side stream after each call."""
# problem: chain
# expect: uncredited
# reasons: baseline_sabotage, late, timeout
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.side = None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        out = self.work(x)
        if self.side is None:
            self.side = torch.cuda.Stream()
        with torch.cuda.stream(self.side):
            torch.cuda._sleep(5_000_000)
        return out
