"""Technique: operation fusion
Analysis: It is wrong because relu is not the same function.
Design: Replace the chain by one relu.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.b = nn.Parameter(torch.randn(d))

    def forward(self, x, y):
        z = x + self.b
        h = torch.relu(z)
        return h * y
