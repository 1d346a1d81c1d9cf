"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Use index_select and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, d))

    def forward(self, u, x):
        i = (u * self.w.shape[0]).long()
        h = torch.index_select(self.w, 0, i)
        return torch.tanh_(h).add_(x)
