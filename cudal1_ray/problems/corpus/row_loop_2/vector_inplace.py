"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Do all rows at once and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = x / (torch.norm(x, dim=1, keepdim=True) + 1.0)
        return torch.relu_(h).mul_(8.0)
