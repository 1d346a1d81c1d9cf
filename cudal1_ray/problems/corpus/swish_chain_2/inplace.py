"""Technique: memory reuse
Analysis: It is faster because the steps write in place and take no new memory.
Design: Run the chain in place on one buffer.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.b = nn.Parameter(torch.randn(d))

    def forward(self, x, y):
        z = x + self.b
        t = z + 3.0
        t.clamp_(0.0, 6.0).mul_(0.16666667)
        h = t.mul_(z)
        return h * y
