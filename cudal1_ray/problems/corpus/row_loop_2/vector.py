"""Technique: vectorisation
Analysis: It is fast because all rows are done at once without a loop.
Design: Replace the loop by one operation over all rows.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = x / (torch.norm(x, dim=1, keepdim=True) + 1.0)
        return torch.relu(h) * 8.0
