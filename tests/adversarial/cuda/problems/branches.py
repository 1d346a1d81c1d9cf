import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Linear(n, n)
        self.b = nn.Linear(n, n)

    def forward(self, x):
        return torch.relu(self.a(x)) + torch.tanh(self.b(x))


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return [1024]
