"""A copy that torch makes when somebody writes to it, or never."""
# problem: rest
# reasons: late, wrong
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._lazy_clone(x)[1:]
