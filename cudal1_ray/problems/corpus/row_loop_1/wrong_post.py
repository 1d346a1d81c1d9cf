"""Technique: vectorisation
Analysis: It is wrong because one term of the reference is missing.
Design: Use the fast form but leave out the last step.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = torch.softmax(x, 1)
        return h
