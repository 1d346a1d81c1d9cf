"""Technique: operation fusion
Analysis: It is fast because one pooling operation reads the input only once.
Design: Replace the windows by one pooling operation.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = nn.functional.max_pool1d(x, 8, 4)
        return torch.relu(h - 1.0) * 2.0
