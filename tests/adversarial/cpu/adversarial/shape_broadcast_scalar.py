"""A scalar that would broadcast."""

# problem: softmax
# expect: refused
# reasons: shape_broadcast
# ruff: noqa
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tensor(1.0 / x.shape[1])
