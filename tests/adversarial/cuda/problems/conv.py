import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv = nn.Conv2d(c, d, 3, padding=1)
        self.bn = nn.BatchNorm2d(d).eval()

    def forward(self, x):
        return F.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)


def get_inputs():
    return [torch.randn(16, 32, 56, 56)]


def get_init_inputs():
    return [32, 64]
