"""Technique: vectorisation
Analysis: It is fast because all rows are done at once, but it takes several passes.
Design: Do all rows at once in explicit steps.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.max(1, keepdim=True).values)
        h = e / e.sum(1, keepdim=True)
        return h * 64.0
