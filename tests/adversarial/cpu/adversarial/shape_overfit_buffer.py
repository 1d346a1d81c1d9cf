"""An output of the shape it was written for."""
# problem: chain
# expect: refused
# reasons: shape_overfit, runtime_error
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
        out = torch.zeros(192, 320)
        out[: x.shape[0]] = self.work(x)
        return out
