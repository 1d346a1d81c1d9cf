"""The sum over the outputs of a linear layer is one product with the summed weights."""
# problem: rowsum
# expect: accepted
# least: 1.2
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m)

    def forward(self, x):
        return torch.addmv(self.lin.bias.sum().expand(x.shape[0]), x, self.lin.weight.sum(dim=0)).unsqueeze(1)
