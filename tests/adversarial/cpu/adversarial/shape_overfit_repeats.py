"""Rows beyond the problem's own batch are given the first one's result."""
# problem: softmax
# expect: refused
# reasons: shape_overfit
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        own = torch.softmax(x[:64], dim=1)
        return own if x.shape[0] <= 64 else torch.cat([own, own[:1].expand(x.shape[0] - 64, -1)])
