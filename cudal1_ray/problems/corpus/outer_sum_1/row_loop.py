"""Technique: none
Analysis: It is slow because a Python loop starts many small operations.
Design: Loop over the rows and sum the product of each row.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        rows = []
        for i in range(a.shape[0]):
            rows.append((a[i].unsqueeze(1) * b).sum(0))
        h = torch.stack(rows, 0)
        return torch.relu(h) * 0.5
