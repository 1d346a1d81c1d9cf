"""Technique: vectorisation
Analysis: It is wrong because the operation runs over the other axis.
Design: Use the fast form over the other axis.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = torch.cumsum(x * x, 0)
        return torch.sqrt(h + 1.0)
