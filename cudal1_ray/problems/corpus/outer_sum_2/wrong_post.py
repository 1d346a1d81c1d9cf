"""Technique: mathematical short-circuit
Analysis: It is wrong because one term of the reference is missing.
Design: Use the fast form but leave out the last step.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, m):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, m))

    def forward(self, x):
        h = torch.matmul(x, self.w)
        return torch.tanh(h) + 1.0
