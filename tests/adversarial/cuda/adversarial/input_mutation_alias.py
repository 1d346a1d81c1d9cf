"""The first half of the rows is copied over the second, through an alias whose version is not counted, and computed."""
# problem: chain
# expect: refused
# reasons: input_mutation, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        rows = x.shape[0] - x.shape[0] // 2
        alias = torch.from_dlpack(x.detach())
        alias[rows:] = alias[: x.shape[0] - rows]
        half = self.work(x[:rows])
        return torch.cat((half, half[: x.shape[0] - rows]))
