"""Rows beyond the problem's own batch stay zero; a smaller batch is right."""
# problem: chain
# expect: refused
# reasons: shape_overfit
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
        out = torch.zeros_like(x)
        out[:192] = self.work(x[:192])
        return out
