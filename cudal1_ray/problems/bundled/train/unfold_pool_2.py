import torch
import torch.nn as nn

B = 8
C = 40
L = 384


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.randn(c, 1))

    def forward(self, x):
        z = x * self.w
        h = z.unfold(2, 6, 2).max(3).values
        return torch.tanh(h) + 0.5


def get_inputs():
    return [torch.randn(B, C, L)]


def get_init_inputs():
    return [C]
