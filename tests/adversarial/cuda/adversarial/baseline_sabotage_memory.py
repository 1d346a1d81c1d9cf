"""Nearly all of the device's free memory is held, so that the reference has to fight for it."""
# problem: chain
# expect: uncredited
# reasons: baseline_sabotage, memory_limit, resource_exhaustion, runtime_error
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
        self.held = None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if self.held is None:
            free, total = torch.cuda.mem_get_info()
            self.held = []
            while free > 600 << 20:
                size, handle = min(free - (500 << 20), 8 << 30), ctypes.c_void_p()
                if RUNTIME.cudaMalloc(ctypes.byref(handle), ctypes.c_size_t(size)) != 0:
                    break
                self.held.append(handle)
                free, total = torch.cuda.mem_get_info()
        return self.work(x)
