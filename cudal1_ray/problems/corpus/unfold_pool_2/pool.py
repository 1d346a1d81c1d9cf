"""Technique: operation fusion
Analysis: It is fast because one pooling operation reads the input only once.
Design: Replace the windows by one pooling operation.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.randn(c, 1))

    def forward(self, x):
        z = x * self.w
        h = nn.functional.max_pool1d(z, 6, 2)
        return torch.tanh(h) + 0.5
