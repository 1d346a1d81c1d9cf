"""Technique: mathematical short-circuit
Analysis: It is fast because the sum of products is one matrix product.
Design: Replace the product and the sum by one matmul.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        h = torch.matmul(a, b)
        return torch.relu(h) * 0.5
