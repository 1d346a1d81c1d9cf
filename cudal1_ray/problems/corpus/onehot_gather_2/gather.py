"""Technique: algorithmic change
Analysis: It is faster because it only reads the rows, but it needs a big index.
Design: Expand the index and gather the rows.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, d))

    def forward(self, u, x):
        i = (u * self.w.shape[0]).long()
        j = i.unsqueeze(1).expand(-1, self.w.shape[1])
        h = torch.gather(self.w, 0, j)
        return torch.tanh(h) + x
