import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Linear(n, n).double()

    def forward(self, x):
        return torch.tanh(self.a(x))


def get_inputs():
    return [torch.randn(128, 256, dtype=torch.float64)]


def get_init_inputs():
    return [256]
