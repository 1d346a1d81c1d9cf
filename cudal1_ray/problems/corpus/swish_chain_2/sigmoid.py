"""Technique: operation fusion
Analysis: It is faster because one hard sigmoid replaces three passes.
Design: Use the fused hard sigmoid and one product.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.b = nn.Parameter(torch.randn(d))

    def forward(self, x, y):
        z = x + self.b
        h = nn.functional.hardsigmoid(z).mul_(z)
        return h * y
