"""ReLU after the pooling: the maximum commutes with it, and it is a quarter of the work."""
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
        return F.max_pool2d(self.bn(self.conv(x)), 2).relu_()
