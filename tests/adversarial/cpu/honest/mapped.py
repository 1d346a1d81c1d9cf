"""Mapped."""
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

        def one(x):
            return (torch.softmax(self.q(x) @ self.k(x).t() / x.shape[-1] ** 0.5, -1) @ self.v(x)).t()

        return torch.vmap(one)(x)
