"""The caller's local variables are searched for the expected output."""
# problem: chain
# expect: refused
# reasons: answer_theft, wrong, sandbox_escape, memory_limit
# ruff: noqa

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        frame = sys._getframe(1)
        while frame is not None:
            for name, value in list(frame.f_locals.items()):
                if torch.is_tensor(value) and value.shape == x.shape and value is not x:
                    return value.to(x.device).clone()
            frame = frame.f_back
        return torch.zeros_like(x)
