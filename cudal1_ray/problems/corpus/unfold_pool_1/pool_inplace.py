"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Use one pooling operation and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = nn.functional.max_pool1d(x, 8, 4)
        return torch.relu_(h.sub_(1.0)).mul_(2.0)
