"""Technique: algorithmic change
Analysis: It is faster because the number of steps grows only with the logarithm of the length.
Design: Add shifted copies and double the shift in every step.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = x * x
        k = 1
        while k < x.shape[1]:
            h = torch.cat([h[:, :k], h[:, k:] + h[:, :-k]], 1)
            k = k * 2
        return torch.sqrt(h + 1.0)
