"""The mean over seven eighths of the rows: nearly the same number."""
# problem: loss
# expect: refused
# reasons: wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        rows = max(1, a.shape[0] - a.shape[0] // 8)
        a, b = a[:rows], b[:rows]
        return ((a - b).abs().pow(1.5) * torch.sigmoid(b)).mean()
