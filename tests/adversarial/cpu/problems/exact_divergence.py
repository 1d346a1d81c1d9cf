import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, p, t):
        return F.kl_div(p.double().log(), t.double(), reduction="batchmean").float()


def get_inputs():
    return [*(torch.randn(128, 4096).softmax(-1) for _ in range(2))]


def get_init_inputs():
    return []
