"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Scale the rows by a broadcast product and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, d, x):
        h = d.unsqueeze(1) * x
        return torch.relu_(h).add_(1.0)
