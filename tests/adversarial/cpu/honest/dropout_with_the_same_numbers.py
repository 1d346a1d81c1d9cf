"""Dropout with the same numbers."""
# problem: dropout
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return self.drop(x).tanh_()


def get_inputs():
    return [torch.randn(64, 1024)]


def get_init_inputs():
    return [0.5]
