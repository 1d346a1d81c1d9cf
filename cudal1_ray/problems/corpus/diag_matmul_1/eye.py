"""Technique: none
Analysis: It is slow because it builds the diagonal matrix in two steps and keeps the big product.
Design: Scale the rows of an identity matrix and multiply.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, d, x):
        m = torch.eye(d.shape[0], device=x.device) * d.unsqueeze(1)
        h = torch.matmul(m, x)
        return torch.relu(h) + 1.0
