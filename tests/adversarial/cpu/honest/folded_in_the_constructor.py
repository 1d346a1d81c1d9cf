"""Folded in the constructor."""
# problem: batchnorm
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv, self.bn = nn.Conv1d(n, n, 3), nn.BatchNorm1d(n).eval()
        fused = nn.utils.fusion.fuse_conv_bn_eval(self.conv.eval(), self.bn)
        del self.conv, self.bn
        self.fused = fused

    def forward(self, x):
        return self.fused(x).relu_()
