"""Technique: vectorisation
Analysis: It is fast because all rows are done at once, but it takes several passes.
Design: Do all rows at once in explicit steps.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        s = torch.sqrt((x * x).sum(1, keepdim=True))
        h = x / (s + 1.0)
        return torch.relu(h) * 8.0
