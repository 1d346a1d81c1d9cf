"""Step by step."""
# problem: gru
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = nn.GRU(n, 64, batch_first=True)

    def forward(self, x):
        gru = self.layer
        given = torch.addmm(gru.bias_ih_l0, x.transpose(0, 1).reshape(-1, x.shape[-1]), gru.weight_ih_l0.t())
        h, weight = x.new_zeros(x.shape[0], 64), gru.weight_hh_l0.t().contiguous()
        for step in given.view(x.shape[1], x.shape[0], -1):
            kept = torch.addmm(gru.bias_hh_l0, h, weight)
            r, z = torch.sigmoid(step[:, :128] + kept[:, :128]).chunk(2, 1)
            n = torch.tanh(torch.addcmul(step[:, 128:], r, kept[:, 128:]))
            h = torch.lerp(n, h, z)
        return h
