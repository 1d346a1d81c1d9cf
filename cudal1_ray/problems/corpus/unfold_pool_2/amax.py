"""Technique: memory reuse
Analysis: It is faster because it does not store the indices of the maximum.
Design: Use amax over the windows.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.randn(c, 1))

    def forward(self, x):
        z = x * self.w
        h = z.unfold(2, 6, 2).amax(3)
        return torch.tanh(h) + 0.5
