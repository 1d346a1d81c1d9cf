"""Technique: algorithmic change
Analysis: It is faster because no big product is stored, but a loop is left.
Design: Loop over blocks of 8 rows and multiply each block.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, m):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, m))

    def forward(self, x):
        h = torch.cat([torch.matmul(r, self.w) for r in x.split(8, 0)], 0)
        return torch.tanh(h * 0.1) + 1.0
