"""Inputs laid out otherwise."""
# problem: laid_out
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):

    def forward(self, x):
        return torch.softmax(x.tanh(), dim=1)


def get_inputs():
    return [torch.randn(1024, 128).t()]


def get_init_inputs():
    return []
