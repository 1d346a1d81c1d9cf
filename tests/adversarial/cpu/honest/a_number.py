"""A number."""
# problem: number
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
        y = x.double().sum()
        return float(y), x.tanh()


def get_inputs():
    return [torch.rand(256, 256)]


def get_init_inputs():
    return []
