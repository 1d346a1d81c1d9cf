import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x):
        y = x + self.bias
        y = y * torch.sigmoid(y)
        y = torch.tanh(y) * 0.5
        y = torch.clamp(y, -0.4, 0.4)
        return y * y + x


def get_inputs():
    return [torch.randn(16384, 4096)]


def get_init_inputs():
    return [4096]
