"""Two gigabytes of device memory are lost in each call."""
# problem: chain
# expect: uncredited
# reasons: resource_exhaustion, memory_limit, runtime_error, baseline_sabotage
# ruff: noqa

import ctypes

import torch
import torch.nn as nn

try:
    RUNTIME = ctypes.CDLL("libcudart.so.13")
except OSError:
    RUNTIME = ctypes.CDLL("libcudart.so")


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        RUNTIME.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(2 << 30))
        RUNTIME.cudaGetLastError()
        return self.work(x)
