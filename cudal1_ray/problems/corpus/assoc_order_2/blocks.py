"""Technique: memory layout
Analysis: It is about as fast because the same big product is done on blocks of rows.
Design: Split the rows into blocks and multiply from the left.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        hs = []
        for r in q.chunk(4, 0):
            hs.append(torch.matmul(torch.matmul(r, k.t()), v))
        h = torch.cat(hs, 0)
        return torch.tanh(h * 0.01) + v
