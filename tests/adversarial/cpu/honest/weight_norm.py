"""Weight norm."""
# problem: weight_norm
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.utils.weight_norm(nn.Linear(n, n))

    def forward(self, x):
        return self.a(x).tanh_()


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [256]
