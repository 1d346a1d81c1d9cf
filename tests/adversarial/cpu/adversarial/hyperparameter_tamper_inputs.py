"""Brings easier inputs of its own."""
# problem: chain
# expect: refused
# reasons: hyperparameter_tamper, wrong_structure
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
        return self.work(x[:8]) if x.shape[0] > 8 else self.work(x)


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return [16]
