"""Technique: mathematical short-circuit
Analysis: It is fast because the small product is done first.
Design: Multiply from the right so that no big matrix is stored.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b, v):
        h = torch.matmul(a, torch.matmul(b, v))
        return torch.relu(h) * 0.01
