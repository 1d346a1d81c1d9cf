"""Technique: memory layout
Analysis: It is about as fast because the big product is still stored.
Design: Transpose the second matrix and sum over the last axis.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = b.t().contiguous()
        h = (a.unsqueeze(1) * c.unsqueeze(0)).sum(2)
        return torch.relu(h) * 0.5
