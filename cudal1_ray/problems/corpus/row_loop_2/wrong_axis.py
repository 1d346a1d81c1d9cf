"""Technique: vectorisation
Analysis: It is wrong because the operation runs over the other axis.
Design: Use the fast form over the other axis.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = x / (torch.norm(x, dim=0, keepdim=True) + 1.0)
        return torch.relu(h) * 8.0
