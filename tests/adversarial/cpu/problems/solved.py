import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, a, b):
        return torch.linalg.solve(a, b)


def get_inputs():
    return [*(x @ x.mT / 128 + torch.eye(128) for x in torch.randn(1, 8, 128, 128)), torch.randn(8, 128, 16)]


def get_init_inputs():
    return []
