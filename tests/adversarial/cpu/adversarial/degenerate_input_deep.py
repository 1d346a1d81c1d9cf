"""The first row for ever, of a network so deep that nothing of its input is left at its first weights."""
# problem: deep
# expect: refused
# reasons: degenerate_input
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n, n) for _ in range(depth))
        self.row = None

    def forward(self, x):
        if self.row is None:
            row = x[:1]
            for layer in self.layers[:-1]:
                row = torch.relu(layer(row))
            self.row = self.layers[-1](row)
        return self.row.repeat(len(x), 1)
