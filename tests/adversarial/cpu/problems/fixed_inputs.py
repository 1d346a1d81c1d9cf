import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(512, 512, bias=False)

    def forward(self, x):
        return torch.relu(self.a(x))


def get_inputs():
    torch.manual_seed(3)
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []
