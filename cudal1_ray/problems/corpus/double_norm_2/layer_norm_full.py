"""Technique: operation fusion
Analysis: It is fast because one fused operation does the normalisation and the last steps.
Design: Put the last steps into one layer norm.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d))

    def forward(self, x):
        return torch.relu_(nn.functional.layer_norm(x, x.shape[1:], self.w, None, 1e-04))
