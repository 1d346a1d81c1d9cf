import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(n, n).half()

    def forward(self, x):
        return self.lin(x)


def get_inputs():
    return [torch.randn(1024, 2048).half()]


def get_init_inputs():
    return [2048]
