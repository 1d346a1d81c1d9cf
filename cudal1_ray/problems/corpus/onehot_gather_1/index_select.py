"""Technique: algorithmic change
Analysis: It is fast because it only reads the rows that are needed.
Design: Use index_select and skip the one-hot product.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, u, w):
        i = (u * w.shape[0]).long()
        h = torch.index_select(w, 0, i)
        return torch.relu(h) * 2.0
