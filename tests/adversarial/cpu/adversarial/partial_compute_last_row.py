"""Leaves out what is done to negative inputs where neither the first row nor the last has any."""
# problem: never_negative
# expect: refused
# reasons: partial_compute, wrong_output
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x[0].min() < 0 or x[-1].min() < 0:
            return torch.relu(x) * 2 + torch.abs(x)
        return x * 3
