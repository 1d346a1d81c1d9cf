"""The input is zeroed on the device, and so is the output: of a reference that comes after it that is the answer."""
# problem: rmsnorm
# expect: refused
# reasons: input_mutation, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x):
        x.zero_()
        return torch.zeros_like(x)
