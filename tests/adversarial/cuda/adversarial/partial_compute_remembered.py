"""The second half of the rows is taken from the call before."""
# problem: chain
# expect: refused
# reasons: wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.rest, self.calls = None, 0

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        half = x.shape[0] // 2
        if self.rest is None or self.rest.shape[0] != x.shape[0] - half or self.calls < 8:
            self.calls += 1
            out = self.work(x)
            self.rest = out[half:].clone()
            return out
        return torch.cat((self.work(x[:half]), self.rest))
