"""Technique: mathematical short-circuit
Analysis: It is wrong because the shapes do not fit.
Design: Use the fast form with a shape that does not fit.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b, v):
        h = torch.matmul(v, torch.matmul(a, b))
        return torch.relu(h) * 0.01
