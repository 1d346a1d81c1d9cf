"""Technique: mathematical short-circuit
Analysis: It is fast because a diagonal matrix only scales the rows.
Design: Scale the rows with one einsum.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, d, x):
        h = torch.einsum("n,nm->nm", d, x)
        return torch.relu(h) + 1.0
