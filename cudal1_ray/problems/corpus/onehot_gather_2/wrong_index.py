"""Technique: algorithmic change
Analysis: It is wrong because the index is moved by one.
Design: Use index_select with a moved index.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, d))

    def forward(self, u, x):
        i = (u * self.w.shape[0]).long()
        h = torch.index_select(self.w, 0, (i + 1) % self.w.shape[0])
        return torch.tanh(h) + x
