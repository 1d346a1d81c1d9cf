"""Two linear layers of one input as a single product."""
# problem: branches
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Linear(n, n), nn.Linear(n, n)
        self.both = None

    def forward(self, x):
        if self.both is None:
            self.both = torch.cat((self.a.weight, self.b.weight)), torch.cat((self.a.bias, self.b.bias))
        left, right = F.linear(x, *self.both).chunk(2, dim=1)
        return torch.relu(left) + torch.tanh(right)
