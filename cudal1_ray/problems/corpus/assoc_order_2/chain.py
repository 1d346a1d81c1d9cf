"""Technique: mathematical short-circuit
Analysis: It is fast because the cheapest order of the products is chosen.
Design: Let multi_dot choose the order of the products.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        h = torch.linalg.multi_dot([q, k.t(), v])
        return torch.tanh(h * 0.01) + v
