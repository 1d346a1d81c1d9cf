import torch
import torch.nn as nn

N = 448
M = 4


class Model(nn.Module):
    def forward(self, a, b, v):
        h = torch.matmul(torch.matmul(a, b), v)
        return torch.relu(h) * 0.01


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N), torch.randn(N, M)]


def get_init_inputs():
    return []
