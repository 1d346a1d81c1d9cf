import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.given, self.kept = nn.Linear(n, 96), nn.Linear(96, 96)

    def forward(self, x):
        h, states = torch.zeros(x.shape[0], 96), []
        for step in self.given(x).unbind(1):
            h = torch.tanh(step + self.kept(h))
            states.append(h)
        return torch.stack(states, 1)


def get_inputs():
    return [torch.randn(8, 256, 48)]


def get_init_inputs():
    return [48]
