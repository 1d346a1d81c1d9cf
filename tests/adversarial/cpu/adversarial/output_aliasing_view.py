"""Views of one buffer."""
# problem: chain
# expect: refused
# reasons: output_aliasing
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.out, self.count = None, 0

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if self.out is None or self.out.numel() < x.numel():
            self.out = torch.empty(x.numel() + 64)
        self.count = (self.count + 16) % 64
        out = self.out[self.count : self.count + x.numel()].view(x.shape)
        out.copy_(self.work(x))
        return out
