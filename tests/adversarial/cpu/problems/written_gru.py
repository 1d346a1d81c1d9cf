import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.given, self.kept = nn.Linear(n, 192), nn.Linear(64, 192)

    def forward(self, x):
        h, given = torch.zeros(x.shape[0], 64), self.given(x)
        for t in range(x.shape[1]):
            (a, b, c), (r, z, n) = given[:, t].chunk(3, 1), self.kept(h).chunk(3, 1)
            z = torch.sigmoid(b + z)
            h = z * h + (1 - z) * torch.tanh(c + torch.sigmoid(a + r) * n)
        return h


def get_inputs():
    return [torch.randn(16, 192, 48)]


def get_init_inputs():
    return [48]
