"""Technique: memory layout
Analysis: It is about as fast because the same products are done on blocks of rows.
Design: Split the rows into blocks and run both layers on each.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.fc1 = nn.Linear(d, h)
        self.fc2 = nn.Linear(h, d)

    def forward(self, x):
        ys = []
        for r in x.chunk(4, 0):
            ys.append(self.fc2(self.fc1(r)))
        y = torch.cat(ys, 0)
        return torch.relu(y) * 2.0
