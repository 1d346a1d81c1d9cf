"""Technique: mathematical short-circuit
Analysis: It is wrong because one term of the reference is missing.
Design: Use the fast form but leave out the last step.
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
        y = nn.functional.linear(x, w)
        return torch.relu(y) * 2.0
