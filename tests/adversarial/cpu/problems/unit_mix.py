import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):

    def __init__(self, n):
        super().__init__()
        self.mix = nn.Linear(n, n, bias=False)
        nn.init.eye_(self.mix.weight)

    def forward(self, x):
        return F.gelu(self.mix(x))


def get_inputs():
    return [torch.randn(256, 384)]


def get_init_inputs():
    return [384]
