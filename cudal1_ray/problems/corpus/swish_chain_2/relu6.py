"""Technique: none
Analysis: It is about as fast because it takes about as many passes.
Design: Use relu6 and move the division to the end.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.b = nn.Parameter(torch.randn(d))

    def forward(self, x, y):
        z = x + self.b
        t = nn.functional.relu6(z + 3.0)
        h = z * t * 0.16666667
        return h * y
