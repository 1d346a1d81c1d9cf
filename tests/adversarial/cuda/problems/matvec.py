import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m)

    def forward(self, x):
        return torch.relu(self.lin(x))


def get_inputs():
    return [torch.randn(8, 4096)]


def get_init_inputs():
    return [4096, 2048]
