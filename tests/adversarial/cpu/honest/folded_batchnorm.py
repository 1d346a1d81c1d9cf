"""Folded batchnorm."""
# problem: batchnorm
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv, self.bn = nn.Conv1d(n, n, 3), nn.BatchNorm1d(n)

    def forward(self, x):
        scale = self.bn.weight * torch.rsqrt(self.bn.running_var + self.bn.eps)
        bias = (self.conv.bias - self.bn.running_mean) * scale + self.bn.bias
        return F.conv1d(x, self.conv.weight * scale[:, None, None], bias).relu_()
