"""The problem's own output is always zero: the work was not made faster."""

# problem: constant
# expect: refused
# reasons: degenerate_input
# ruff: noqa
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros(x.shape[0], 1)
