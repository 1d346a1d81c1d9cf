"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Fold the two layers into one and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.fc1 = nn.Linear(d, h)
        self.fc2 = nn.Linear(h, d)

    def forward(self, x):
        w = torch.matmul(self.fc2.weight, self.fc1.weight)
        b = torch.mv(self.fc2.weight, self.fc1.bias) + self.fc2.bias
        y = nn.functional.linear(x, w, b)
        return torch.relu_(y).mul_(2.0)
