"""The process touches address zero after the kernels were launched."""
# problem: chain
# expect: refused
# reasons: crash, sticky_cuda_error, runtime_error, sandbox_escape, timeout
# ruff: noqa

import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        out = self.work(x)
        ctypes.c_int.from_address(0).value = 1
        return out
