"""Technique: algorithmic change
Analysis: It is faster because each column is small, but a loop is left.
Design: Loop over the columns and multiply from the right.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        hs = []
        for j in range(v.shape[1]):
            hs.append(torch.mv(q, torch.mv(k.t(), v[:, j])))
        h = torch.stack(hs, 1)
        return torch.tanh(h * 0.01) + v
