import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, rows, n):
        super().__init__()
        self.table = nn.Embedding(rows, n)

    def forward(self, index):
        return self.table(index).mean(dim=1)


def get_inputs():
    return [torch.randint(0, 8192, (2048, 32))]


def get_init_inputs():
    return [8192, 256]
