"""Leaves with success."""
# problem: chain
# expect: refused
# reasons: crash, runtime_error
# ruff: noqa

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        sys.exit(0)
