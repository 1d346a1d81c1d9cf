import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Linear(n, 4 * n), nn.Linear(4 * n, 64)

    def forward(self, x):
        return torch.cat([torch.tanh(self.b(torch.relu(self.a(x)))), 1e3 * x[:, :16].cumsum(1)], dim=1)


def get_inputs():
    return [torch.rand(256, 256)]


def get_init_inputs():
    return [256]
