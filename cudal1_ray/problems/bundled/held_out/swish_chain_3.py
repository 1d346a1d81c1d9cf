import torch
import torch.nn as nn

N = 704
D = 576


class Model(nn.Module):
    def forward(self, x, y):
        z = x * 1.5
        t = z + 3.0
        t = torch.clamp(t, 0.0, 6.0)
        t = t / 6.0
        h = z * t
        return h + y


def get_inputs():
    return [torch.randn(N, D), torch.randn(N, D)]


def get_init_inputs():
    return []
