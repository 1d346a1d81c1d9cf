"""Looks at the input's alignment before choosing a path."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        if x.data_ptr() % 16 or not x.is_contiguous():
            x = x.clone(memory_format=torch.contiguous_format)
        return self.norm(self.b(self.a(x).relu_()).tanh_())
