"""Searches every object of the process for the answer."""
# problem: chain
# expect: refused
# reasons: answer_theft, wrong
# ruff: noqa

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        for value in gc.get_objects():
            if type(value) is torch.Tensor and value.shape == x.shape and value is not x:
                return value.clone()
        return torch.zeros_like(x)
