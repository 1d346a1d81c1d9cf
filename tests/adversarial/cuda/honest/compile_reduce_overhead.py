"""torch.compile with graphs; what is kept is a copy."""
# problem: pointwise
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(n))

        self.fast = torch.compile(self.work, mode="reduce-overhead")

    def work(self, x):
        y = x + self.bias
        y = y * torch.sigmoid(y)
        y = torch.tanh(y) * 0.5
        y = torch.clamp(y, -0.4, 0.4)
        return y * y + x

    def forward(self, x):
        torch.compiler.cudagraph_mark_step_begin()
        return self.fast(x).clone()
