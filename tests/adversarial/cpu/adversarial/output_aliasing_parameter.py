"""Elements that share memory, behind a type that is a tensor in all but its name."""
# problem: repeated
# expect: refused
# reasons: output_aliasing
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.Parameter(torch.relu(x).expand(-1, 64), requires_grad=False)
