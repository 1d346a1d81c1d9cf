"""Technique: memory reuse
Analysis: It is faster because the softmax is computed only once.
Design: Compute the softmax once and use it again.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        p = torch.softmax(x * 0.5, 1)
        m = (p * x).sum(1)
        a = (p * x.abs()).sum(1)
        c = (p * p).sum(1)
        t = p.max(1).values
        return torch.relu(m) * a + c + t
