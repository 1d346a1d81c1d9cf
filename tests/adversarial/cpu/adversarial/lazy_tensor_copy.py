"""A copy that torch makes at the first write to it, or never."""
# problem: rest
# expect: refused
# reasons: late, wrong
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._lazy_clone(x)[1:]
