"""Technique: none
Analysis: It is slow because it works in double precision and converts back.
Design: Run both products in double precision.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b, v):
        h = torch.matmul(torch.matmul(a.double(), b.double()), v.double()).float()
        return torch.relu(h) * 0.01
