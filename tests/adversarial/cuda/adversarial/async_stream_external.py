"""A stream that torch did not make and does not know, never joined."""
# problem: chain
# expect: uncredited
# reasons: late, wrong
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
        self.side = None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if self.side is None:
            handle = ctypes.c_void_p()
            assert RUNTIME.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
            self.side = torch.cuda.ExternalStream(handle.value)
            self.ready = torch.cuda.Event()
        self.ready.record()
        self.side.wait_event(self.ready)
        with torch.cuda.stream(self.side):
            return self.work(x)
