"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Multiply from the right and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b, v):
        h = torch.matmul(a, torch.matmul(b, v))
        return torch.relu_(h).mul_(0.01)
