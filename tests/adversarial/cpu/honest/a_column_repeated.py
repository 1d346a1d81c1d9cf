"""A column repeated."""
# problem: repeated
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, x):
        return torch.relu(x).expand(-1, 64).contiguous()


def get_inputs():
    return [torch.randn(2048, 1)]


def get_init_inputs():
    return []
