"""Technique: algorithmic change
Analysis: It is faster because no big product is stored, but a loop is left.
Design: Loop over blocks of 8 rows and multiply each block.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        h = torch.cat([torch.matmul(r, b) for r in a.split(8, 0)], 0)
        return torch.relu(h) * 0.5
