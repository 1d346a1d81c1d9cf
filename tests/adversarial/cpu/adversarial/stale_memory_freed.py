"""Allocates and frees the output size over and over, hoping to find the answer."""
# problem: chain
# expect: refused
# reasons: stale_memory, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        for _ in range(4):
            out = torch.empty(x.shape)
        return out
