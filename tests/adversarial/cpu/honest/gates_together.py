"""Gates together."""
# problem: written_gru
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.given, self.kept = nn.Linear(n, 192), nn.Linear(64, 192)

    def forward(self, x):
        given, h = self.given(x).transpose(0, 1), x.new_zeros(x.shape[0], 64)
        weight, bias = self.kept.weight.t().contiguous(), self.kept.bias
        for step in given:
            kept = torch.addmm(bias, h, weight)
            r, z = torch.sigmoid(step[:, :128] + kept[:, :128]).chunk(2, 1)
            h = torch.lerp(torch.tanh(torch.addcmul(step[:, 128:], r, kept[:, 128:])), h, z)
        return h
