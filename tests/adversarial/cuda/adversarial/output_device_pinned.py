"""The output is pinned host memory that a copy is still on its way to."""
# problem: chain
# expect: refused
# reasons: output_device, late, wrong
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
        out = torch.empty(x.shape, pin_memory=True)
        out.copy_(self.work(x), non_blocking=True)
        return out
