"""Fills the scratch."""
# problem: chain
# expect: refused
# reasons: resource_exhaustion, runtime_error, timeout
# ruff: noqa

import tempfile

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        for number in range(1 << 20):
            with open(f"{tempfile.gettempdir()}/{number}", "wb") as file:
                file.write(bytes(32 << 20))
