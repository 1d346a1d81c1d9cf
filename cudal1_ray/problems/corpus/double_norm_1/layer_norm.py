"""Technique: operation fusion
Analysis: It is fast because one fused operation does the normalisation.
Design: Replace the passes by one layer norm.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d))
        self.b = nn.Parameter(torch.randn(d))

    def forward(self, x):
        h = nn.functional.layer_norm(x, x.shape[1:], eps=1e-05)
        return h * self.w + self.b
