"""Technique: algorithmic change
Analysis: It is faster because it combines a few shifted slices and stores no windows.
Design: Combine the shifted slices of the input in a loop over the window.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.randn(c, 1))

    def forward(self, x):
        z = x * self.w
        n = z.shape[2] - 5
        h = z[:, :, 0:n:2]
        for j in range(1, 6):
            h = torch.maximum(h, z[:, :, j : n + j : 2])
        return torch.tanh(h) + 0.5
