"""Activates in place on the caller's tensor."""
# problem: chain
# expect: refused
# reasons: input_mutation
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
        out = self.work(x)
        x[-1, -1] += 1.0
        return out
