"""A plain tensor whose methods were replaced: the work happens when it is copied away."""
# problem: chain
# expect: refused
# reasons: lazy_tensor
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
        compute = lambda *args, **kwargs: self.work(x)
        for name in ("cpu", "detach", "contiguous", "clone", "to", "float", "double", "numpy"):
            setattr(out, name, compute)
        return out
