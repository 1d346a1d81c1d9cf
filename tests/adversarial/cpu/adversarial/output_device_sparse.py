"""A sparse tensor, which is cheap when it is empty."""
# problem: chain
# expect: refused
# reasons: output_device, lazy_tensor
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return torch.zeros_like(x).to_sparse()
