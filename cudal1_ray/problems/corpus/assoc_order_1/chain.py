"""Technique: mathematical short-circuit
Analysis: It is fast because the cheapest order of the products is chosen.
Design: Let multi_dot choose the order of the products.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b, v):
        h = torch.linalg.multi_dot([a, b, v])
        return torch.relu(h) * 0.01
