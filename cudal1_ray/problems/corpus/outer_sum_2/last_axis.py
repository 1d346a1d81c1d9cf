"""Technique: memory layout
Analysis: It is about as fast because the big product is still stored.
Design: Transpose the second matrix and sum over the last axis.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, m):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, m))

    def forward(self, x):
        c = self.w.t().contiguous()
        h = (x.unsqueeze(1) * c.unsqueeze(0)).sum(2)
        return torch.tanh(h * 0.1) + 1.0
