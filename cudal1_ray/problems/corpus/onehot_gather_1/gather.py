"""Technique: algorithmic change
Analysis: It is faster because it only reads the rows, but it needs a big index.
Design: Expand the index and gather the rows.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, u, w):
        i = (u * w.shape[0]).long()
        j = i.unsqueeze(1).expand(-1, w.shape[1])
        h = torch.gather(w, 0, j)
        return torch.relu(h) * 2.0
