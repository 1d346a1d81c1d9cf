"""Technique: algorithmic change
Analysis: It is faster because it combines a few shifted slices and stores no windows.
Design: Combine the shifted slices of the input in a loop over the window.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.shape[2] - 7
        h = x[:, :, 0:n:4]
        for j in range(1, 8):
            h = torch.maximum(h, x[:, :, j : n + j : 4])
        return torch.relu(h - 1.0) * 2.0
