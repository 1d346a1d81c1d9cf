"""The reference, renamed, with kernels that only its comments know."""
# problem: pointwise
# expect: uncredited
# reasons: no_op_rewrite
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """All five operations in one kernel: registers only, 128-bit loads, four warps."""

    def __init__(self, n):
        super().__init__()
        # read through the texture cache
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x):
        # launch: (rows, n / 1024) blocks of 256 threads
        y = x + self.bias
        y = y * torch.sigmoid(y)
        y = torch.tanh(y) * 0.5
        y = torch.clamp(y, -0.4, 0.4)
        return y * y + x
