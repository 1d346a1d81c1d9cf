import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv = nn.Conv1d(n, n, 3)
        self.bn = nn.BatchNorm1d(n).eval()

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


def get_inputs():
    return [torch.randn(16, 32, 128)]


def get_init_inputs():
    return [32]
