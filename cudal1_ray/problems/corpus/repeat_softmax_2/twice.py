"""Technique: memory reuse
Analysis: It is a little faster because one softmax less is computed.
Design: Keep the softmax for the first two sums and compute it again for the last.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        p = torch.softmax(x * 0.5, 1)
        m = (p * x).sum(1)
        a = (p * x.abs()).sum(1)
        c = (p * p).sum(1)
        t = torch.softmax(x * 0.5, 1).max(1).values
        return torch.relu(m) * a + c + t
