import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("middle", torch.zeros(n)); self.register_buffer("spread", torch.ones(n))

    def forward(self, x):
        return torch.relu((x - self.middle) * torch.rsqrt(self.spread + 1e-5))


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return [1024]
