import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x.square().sum(dim=1, keepdim=True))


def get_inputs():
    return [torch.randn(1024, 4096)]


def get_init_inputs():
    return []
