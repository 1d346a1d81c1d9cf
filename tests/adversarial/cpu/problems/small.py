import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Linear(n, n)
        self.b = nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))


def get_inputs():
    return [torch.randn(24, 160)]


def get_init_inputs():
    return [160]
