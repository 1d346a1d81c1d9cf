"""Technique: mathematical short-circuit
Analysis: It is a little faster because the first bias is folded into the second.
Design: Fold the first bias into the second and keep both products.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.fc1 = nn.Linear(d, h)
        self.fc2 = nn.Linear(h, d)

    def forward(self, x):
        b = torch.mv(self.fc2.weight, self.fc1.bias) + self.fc2.bias
        h = torch.matmul(x, self.fc1.weight.t())
        y = torch.addmm(b, h, self.fc2.weight.t())
        return torch.relu(y) * 2.0
