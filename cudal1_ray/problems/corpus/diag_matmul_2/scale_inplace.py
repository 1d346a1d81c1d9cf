"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Scale the rows by a broadcast product and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.d = nn.Parameter(torch.randn(n))

    def forward(self, x):
        h = self.d.unsqueeze(1) * x
        return torch.tanh_(h).mul_(0.5).add_(x)
