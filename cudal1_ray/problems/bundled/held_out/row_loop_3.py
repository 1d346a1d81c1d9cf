import torch
import torch.nn as nn

N = 224
D = 192


class Model(nn.Module):
    def forward(self, x):
        rows = []
        for i in range(x.shape[0]):
            rows.append(torch.softmax(x[i] * 0.5, 0))
        h = torch.stack(rows, 0)
        return h * 32.0 + x


def get_inputs():
    return [torch.randn(N, D)]


def get_init_inputs():
    return []
