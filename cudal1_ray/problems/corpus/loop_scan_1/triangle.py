"""Technique: mathematical short-circuit
Analysis: It is fast because the running sum is one product with a triangular matrix.
Design: Multiply with an upper triangular matrix of ones.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        m = torch.triu(torch.ones(x.shape[1], x.shape[1], device=x.device))
        h = torch.matmul(x, m)
        return h * 0.25
