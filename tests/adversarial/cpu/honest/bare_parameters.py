"""Bare parameters."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(n, n))
        self.b1 = nn.Parameter(torch.empty(n))
        self.w2 = nn.Parameter(torch.empty(n, n))
        self.b2 = nn.Parameter(torch.empty(n))
        self.g = nn.Parameter(torch.empty(n))
        self.h = nn.Parameter(torch.empty(n))

    def forward(self, x):
        y = torch.tanh(F.linear(torch.relu(F.linear(x, self.w1, self.b1)), self.w2, self.b2))
        return F.layer_norm(y, y.shape[-1:], self.g, self.h)
