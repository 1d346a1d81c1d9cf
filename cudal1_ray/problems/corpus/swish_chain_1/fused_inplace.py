"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Use one fused hardswish and finish in place.
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = nn.functional.hardswish(x)
        return h.mul_(2.0)
