"""The last row is not computed."""
# problem: chain
# expect: refused
# reasons: partial_compute, wrong_output
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
        out[:-1] = self.work(x[:-1])
        return out
