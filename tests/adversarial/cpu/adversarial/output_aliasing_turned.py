"""Gives out a turned view where the reference makes a copy, which is most of the work."""
# problem: turned_after
# expect: uncredited
# reasons: output_aliasing
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).transpose(1, 2)
