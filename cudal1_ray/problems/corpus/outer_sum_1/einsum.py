"""Technique: mathematical short-circuit
Analysis: It is fast because the sum of products is one matrix product.
Design: Write the sum of products as one einsum.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        h = torch.einsum("nk,km->nm", a, b)
        return torch.relu(h) * 0.5
