"""Single precision where double was asked for."""
# problem: double
# expect: refused
# reasons: precision_downgrade, tolerance_exploit
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Linear(n, n).double()

    def forward(self, x):
        return torch.tanh(F.linear(x.float(), self.a.weight.float(), self.a.bias.float())).double()
