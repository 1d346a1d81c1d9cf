"""Technique: mathematical short-circuit
Analysis: It is fast because a diagonal matrix only scales the rows.
Design: Scale the rows with one einsum.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.d = nn.Parameter(torch.randn(n))

    def forward(self, x):
        h = torch.einsum("n,nm->nm", self.d, x)
        return torch.tanh(h) * 0.5 + x
