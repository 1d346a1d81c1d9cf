import torch
import torch.nn as nn

N = 128
K = 160
M = 112


class Model(nn.Module):
    def forward(self, a, b):
        h = (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)
        return torch.relu(h) * 0.5


def get_inputs():
    return [torch.randn(N, K), torch.randn(K, M)]


def get_init_inputs():
    return []
