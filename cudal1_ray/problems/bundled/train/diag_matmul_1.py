import torch
import torch.nn as nn

N = 960
M = 64


class Model(nn.Module):
    def forward(self, d, x):
        h = torch.matmul(torch.diag(d), x)
        return torch.relu(h) + 1.0


def get_inputs():
    return [torch.randn(N), torch.randn(N, M)]


def get_init_inputs():
    return []
