"""Technique: precision
Analysis: It is faster because it stays in single precision and multiplies in place.
Design: Run the passes in single precision and multiply by rsqrt.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d))

    def forward(self, x):
        z = x - x.mean(1, keepdim=True)
        s = (z * z).mean(1, keepdim=True)
        h = z.mul_(torch.rsqrt(s + 1e-04))
        return torch.relu(h * self.w)
