"""The functions that move results are replaced."""
# problem: chain
# expect: refused
# reasons: checker_patch, wrong_output, partial_compute, stale_memory
# ruff: noqa

import ctypes

import torch
import torch.nn as nn

ctypes.memmove = lambda *args: None
torch.Tensor.contiguous = lambda self, *args, **kwargs: self
torch.Tensor.copy_ = lambda self, other, *args, **kwargs: self


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return torch.zeros_like(x)
