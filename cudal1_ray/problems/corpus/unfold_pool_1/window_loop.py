"""Technique: none
Analysis: It is slow because a Python loop starts many small operations.
Design: Loop over the windows and reduce each one.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        hs = []
        for i in range(0, x.shape[2] - 7, 4):
            hs.append(x[:, :, i : i + 8].max(2).values)
        h = torch.stack(hs, 2)
        return torch.relu(h - 1.0) * 2.0
