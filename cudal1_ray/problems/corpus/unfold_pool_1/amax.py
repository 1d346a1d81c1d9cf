"""Technique: memory reuse
Analysis: It is faster because it does not store the indices of the maximum.
Design: Use amax over the windows.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = x.unfold(2, 8, 4).amax(3)
        return torch.relu(h - 1.0) * 2.0
