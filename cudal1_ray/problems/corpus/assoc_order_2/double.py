"""Technique: none
Analysis: It is slow because it works in double precision and converts back.
Design: Run both products in double precision.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        h = torch.matmul(torch.matmul(q.double(), k.t().double()), v.double()).float()
        return torch.tanh(h * 0.01) + v
