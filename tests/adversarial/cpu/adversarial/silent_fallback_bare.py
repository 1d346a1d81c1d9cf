"""The same with a bare except."""
# problem: chain
# expect: uncredited
# reasons: silent_fallback
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
        try:
            out = missing_kernel(x)  # noqa: F821
        except:  # noqa: E722
            out = self.work(x)
        return out
