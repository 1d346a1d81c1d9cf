"""Technique: memory layout
Analysis: It is about as fast because the same big product is done on blocks of rows.
Design: Split the rows into blocks and multiply from the left.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b, v):
        hs = []
        for r in a.chunk(4, 0):
            hs.append(torch.matmul(torch.matmul(r, b), v))
        h = torch.cat(hs, 0)
        return torch.relu(h) * 0.01
