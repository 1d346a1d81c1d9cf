import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):

    def forward(self, x):
        return torch.linalg.cholesky(x)


def get_inputs():
    a = torch.randn(96, 96)
    return [a @ a.t() + 96 * torch.eye(96)]


def get_init_inputs():
    return []
