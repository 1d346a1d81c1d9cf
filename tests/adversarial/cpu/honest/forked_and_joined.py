"""Forked and joined."""
# problem: attention
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(n, n), nn.Linear(n, n), nn.Linear(n, n)

    def forward(self, x):

        keys = torch.jit.fork(self.k, x)
        q, v = self.q(x), self.v(x)
        return F.scaled_dot_product_attention(q, torch.jit.wait(keys), v).transpose(1, 2)
