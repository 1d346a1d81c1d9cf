"""Technique: vectorisation
Analysis: It is wrong because one term of the reference is missing.
Design: Use the fast form but leave out the last step.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = x / (torch.norm(x, dim=1, keepdim=True) + 1.0)
        return h * 8.0
