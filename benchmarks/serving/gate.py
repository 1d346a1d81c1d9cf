"""A gate: tanh(x + bias) * x, three passes over 128 MiB that one kernel can do in one."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return torch.tanh(x + self.bias) * x


def get_inputs():
    return [torch.randn(8192, 4096)]


def get_init_inputs():
    return [4096]
