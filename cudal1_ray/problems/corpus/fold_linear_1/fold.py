"""Technique: mathematical short-circuit
Analysis: It is fast because two layers without activation are one layer.
Design: Fold the two weights and the two biases into one linear layer.
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
        return torch.relu(y) * 2.0
