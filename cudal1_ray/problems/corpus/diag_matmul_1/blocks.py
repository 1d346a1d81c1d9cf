"""Technique: algorithmic change
Analysis: It is faster because the diagonal blocks hold fewer zeros.
Design: Multiply blocks of 64 rows with small diagonal matrices.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, d, x):
        hs = []
        for i in range(0, x.shape[0], 64):
            hs.append(torch.matmul(torch.diag(d[i : i + 64]), x[i : i + 64]))
        h = torch.cat(hs, 0)
        return torch.relu(h) + 1.0
