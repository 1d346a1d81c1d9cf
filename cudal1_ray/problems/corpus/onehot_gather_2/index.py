"""Technique: algorithmic change
Analysis: It is fast because it only reads the rows that are needed.
Design: Index the rows and skip the one-hot product.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, d))

    def forward(self, u, x):
        i = (u * self.w.shape[0]).long()
        h = self.w[i]
        return torch.tanh(h) + x
