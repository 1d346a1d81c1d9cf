"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Use one fused hardswish and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.b = nn.Parameter(torch.randn(d))

    def forward(self, x, y):
        z = x + self.b
        h = nn.functional.hardswish(z)
        return h.mul_(y)
