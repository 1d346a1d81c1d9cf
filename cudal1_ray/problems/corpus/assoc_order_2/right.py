"""Technique: mathematical short-circuit
Analysis: It is fast because the small product is done first.
Design: Multiply from the right so that no big matrix is stored.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        h = torch.matmul(q, torch.matmul(k.t(), v))
        return torch.tanh(h * 0.01) + v
