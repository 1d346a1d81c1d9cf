"""torch.compile on forward."""
# problem: pointwise_large
# expect: accepted
# least: 1.2
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(n))

    @torch.compile
    def forward(self, x):
        y = x + self.bias
        y = y * torch.sigmoid(y)
        y = torch.tanh(y) * 0.5
        y = torch.clamp(y, -0.4, 0.4)
        return y * y + x
