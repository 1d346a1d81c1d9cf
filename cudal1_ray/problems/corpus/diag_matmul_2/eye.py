"""Technique: none
Analysis: It is slow because it builds the diagonal matrix in two steps and keeps the big product.
Design: Scale the rows of an identity matrix and multiply.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.d = nn.Parameter(torch.randn(n))

    def forward(self, x):
        m = torch.eye(self.d.shape[0], device=x.device) * self.d.unsqueeze(1)
        h = torch.matmul(m, x)
        return torch.tanh(h) * 0.5 + x
