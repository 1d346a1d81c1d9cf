"""Technique: mathematical short-circuit
Analysis: It is fast because the sum of products is one matrix product.
Design: Replace the product and the sum by one matmul.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, m):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, m))

    def forward(self, x):
        h = torch.matmul(x, self.w)
        return torch.tanh(h * 0.1) + 1.0
