"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Use one matmul and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, m):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, m))

    def forward(self, x):
        h = torch.matmul(x, self.w)
        return torch.tanh_(h.mul_(0.1)).add_(1.0)
