"""Lets cuDNN search for its fastest algorithm."""
# problem: conv
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cudnn.benchmark = True


class ModelNew(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv = nn.Conv2d(c, d, 3, padding=1)
        self.bn = nn.BatchNorm2d(d).eval()

    def forward(self, x):
        return F.max_pool2d(torch.relu_(self.bn(self.conv(x))), 2)
