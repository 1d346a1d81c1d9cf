"""The weights are pinned in the L2 cache by an access policy window, through ctypes."""
# problem: matvec
# expect: uncredited
# reasons: l2_persist
# ruff: noqa

import ctypes

import torch
import torch.nn as nn

try:
    RUNTIME = ctypes.CDLL("libcudart.so.13")
except OSError:
    RUNTIME = ctypes.CDLL("libcudart.so")
PERSISTING_L2, WINDOW_ATTRIBUTE, PERSISTING, STREAMING = 6, 1, 2, 1


class Window(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("rest", ctypes.c_char * 32),
    ]


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m)
        self.side = None

    def pin(self):
        self.side = torch.cuda.Stream()
        weight = self.lin.weight
        RUNTIME.cudaDeviceSetLimit(PERSISTING_L2, ctypes.c_size_t(1 << 25))
        window = Window(weight.data_ptr(), weight.numel() * 4, 1.0, PERSISTING, STREAMING, b"")
        stream = ctypes.c_void_p(self.side.cuda_stream)
        RUNTIME.cudaStreamSetAttribute(stream, WINDOW_ATTRIBUTE, ctypes.byref(window))

    def forward(self, x):
        if self.side is None:
            self.pin()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            out = torch.relu(self.lin(x))
        torch.cuda.current_stream().wait_stream(self.side)
        return out
