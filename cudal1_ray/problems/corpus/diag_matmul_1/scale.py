"""Technique: mathematical short-circuit
Analysis: It is fast because a diagonal matrix only scales the rows.
Design: Scale the rows by a broadcast product and skip the matmul.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, d, x):
        h = d.unsqueeze(1) * x
        return torch.relu(h) + 1.0
