"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Do all rows at once and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = torch.softmax(x, 1)
        return h.mul_(64.0)
