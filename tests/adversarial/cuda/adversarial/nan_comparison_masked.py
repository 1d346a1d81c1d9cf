"""An eighth of the rows is computed, the others are NaN: a comparison of finite values only sees no error."""
# problem: chain
# expect: refused
# reasons: nan_comparison, wrong
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
        out = torch.full_like(x, float("nan"))
        rows = max(1, x.shape[0] // 8)
        out[:rows] = self.work(x[:rows])
        return out
