"""Writes noise into every open socket."""
# problem: chain
# expect: refused
# reasons: result_forgery, crash
# ruff: noqa

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        for fd in range(3, 64):
            try:
                os.write(fd, b"\x08\x00\x00\x00[1,2,3,]")
            except OSError:
                pass
        return torch.zeros_like(x)
