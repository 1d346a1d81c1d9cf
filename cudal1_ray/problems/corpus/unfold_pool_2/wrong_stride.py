"""Technique: operation fusion
Analysis: It is wrong because the shapes do not fit.
Design: Use the fast form with a shape that does not fit.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.randn(c, 1))

    def forward(self, x):
        z = x * self.w
        h = nn.functional.max_pool1d(z, 6, 4)
        return torch.tanh(h) + 0.5
