import torch
import torch.nn as nn

N = 576
D = 576


class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d))

    def forward(self, x):
        z = x.double()
        z = z - z.mean(1, keepdim=True)
        s = (z * z).mean(1, keepdim=True)
        h = (z / torch.sqrt(s + 1e-05)).float()
        return torch.tanh(h * self.w) + x


def get_inputs():
    return [torch.randn(N, D)]


def get_init_inputs():
    return [D]
