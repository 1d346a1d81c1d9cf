import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, a, b):
        return torch.triu(a @ b)


def get_inputs():
    return [*(torch.triu(torch.randn(256, 256)) for _ in range(2))]


def get_init_inputs():
    return []
