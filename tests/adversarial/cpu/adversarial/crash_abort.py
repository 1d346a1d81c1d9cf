"""Aborts at import."""
# problem: chain
# expect: refused
# reasons: crash
# ruff: noqa

import os

import torch
import torch.nn as nn

os.abort()


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
