"""Autograd function."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(Squash.apply(self.b(torch.relu(self.a(x)))))
