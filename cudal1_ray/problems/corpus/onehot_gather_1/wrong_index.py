"""Technique: algorithmic change
Analysis: It is wrong because the index is moved by one.
Design: Use index_select with a moved index.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, u, w):
        i = (u * w.shape[0]).long()
        h = torch.index_select(w, 0, (i + 1) % w.shape[0])
        return torch.relu(h) * 2.0
