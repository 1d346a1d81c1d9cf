import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, a, b):
        return torch.tanh(a.t() @ b)


def get_inputs():
    return [*((x + x.t()) / 2 for x in torch.randn(2, 256, 256))]


def get_init_inputs():
    return []
