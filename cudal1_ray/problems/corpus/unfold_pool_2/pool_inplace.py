"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Use one pooling operation and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.randn(c, 1))

    def forward(self, x):
        z = x * self.w
        h = nn.functional.max_pool1d(z, 6, 2)
        return torch.tanh_(h).add_(0.5)
