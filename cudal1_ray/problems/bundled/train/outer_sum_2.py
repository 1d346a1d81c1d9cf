import torch
import torch.nn as nn

N = 160
K = 128
M = 96


class Model(nn.Module):
    def __init__(self, k, m):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, m))

    def forward(self, x):
        h = (x.unsqueeze(2) * self.w.unsqueeze(0)).sum(1)
        return torch.tanh(h * 0.1) + 1.0


def get_inputs():
    return [torch.randn(N, K)]


def get_init_inputs():
    return [K, M]
