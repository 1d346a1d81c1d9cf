"""Technique: mathematical short-circuit
Analysis: It is faster because the mean and the square are taken from dot products.
Design: Use the mean of squares minus the square of the mean.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d))

    def forward(self, x):
        d = x.shape[1]
        m = x.sum(1, keepdim=True) / d
        q = torch.linalg.vecdot(x, x).unsqueeze(1) / d
        r = torch.rsqrt(q - m * m + 1e-04)
        h = torch.addcmul(-m * r, x, r)
        return torch.relu(h * self.w)
