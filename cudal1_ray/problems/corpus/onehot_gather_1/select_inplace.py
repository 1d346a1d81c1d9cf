"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Use index_select and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, u, w):
        i = (u * w.shape[0]).long()
        h = torch.index_select(w, 0, i)
        return torch.relu_(h).mul_(2.0)
