"""Drawn by the same seed."""
# problem: packed
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(3):
            self.layers.append(nn.Linear(n, n))
        self.packed = [(layer.weight.detach().t().contiguous(), layer.bias.detach()) for layer in self.layers]

    def forward(self, x):
        for weight, bias in self.packed:
            x = torch.addmm(bias, x, weight).relu_()
        return x
