"""Technique: vectorisation
Analysis: It is fast because the running sum is one operation without a loop.
Design: Replace the loop by one cumsum.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = torch.cumsum(x * x, 1)
        return torch.sqrt(h + 1.0)
