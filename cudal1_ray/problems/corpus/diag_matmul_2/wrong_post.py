"""Technique: mathematical short-circuit
Analysis: It is wrong because one term of the reference is missing.
Design: Use the fast form but leave out the last step.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.d = nn.Parameter(torch.randn(n))

    def forward(self, x):
        h = self.d.unsqueeze(1) * x
        return torch.tanh(h) + x
