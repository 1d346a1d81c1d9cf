"""Technique: algorithmic change
Analysis: It is faster because the diagonal blocks hold fewer zeros.
Design: Multiply blocks of 64 rows with small diagonal matrices.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.d = nn.Parameter(torch.randn(n))

    def forward(self, x):
        hs = []
        for i in range(0, x.shape[0], 64):
            hs.append(torch.matmul(torch.diag(self.d[i : i + 64]), x[i : i + 64]))
        h = torch.cat(hs, 0)
        return torch.tanh(h) * 0.5 + x
