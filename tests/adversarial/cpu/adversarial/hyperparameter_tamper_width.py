"""A smaller model than was asked for."""

# problem: chain
# expect: refused
# reasons: hyperparameter_tamper, wrong_output, partial_compute
# ruff: noqa
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        n = n // 4
        self.n = n
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        h = self.norm(torch.tanh(self.b(torch.relu(self.a(x[:, : self.n])))))
        return h.repeat(1, 4)
