"""A package that may be missing, and another way without it, chosen at import."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    import a_package_that_is_not_there as fast
except ImportError:
    fast = None


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        if fast is not None:
            return fast.chain(self, x)
        return self.norm(self.b(self.a(x).relu_()).tanh_())
