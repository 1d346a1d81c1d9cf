import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, x, lengths):
        heeded = torch.arange(x.shape[1]) < lengths[:, None]
        return (torch.tanh(x) * heeded).cumsum(1)


def get_inputs():
    return [torch.randn(256, 512), torch.full((256,), 512)]


def get_init_inputs():
    return []
