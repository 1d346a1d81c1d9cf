"""One column for all, where every one was asked for."""
# problem: repeated
# expect: refused
# reasons: output_aliasing
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).expand(-1, 64)
