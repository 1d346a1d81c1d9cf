"""Softmax from its parts: right, and no faster."""
# problem: softmax
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e.div_(e.sum(1, keepdim=True))
