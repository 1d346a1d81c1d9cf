"""The batch norm is folded into the convolution, in each call, with the running statistics it has."""
# problem: conv
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv = nn.Conv2d(c, d, 3, padding=1)
        self.bn = nn.BatchNorm2d(d).eval()

    def forward(self, x):
        scale = self.bn.weight * torch.rsqrt(self.bn.running_var + self.bn.eps)
        bias = (self.conv.bias - self.bn.running_mean) * scale + self.bn.bias
        y = F.conv2d(x, self.conv.weight * scale[:, None, None, None], bias, padding=1)
        return F.max_pool2d(y.relu_(), 2)
