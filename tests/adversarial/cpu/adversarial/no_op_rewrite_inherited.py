"""The reference under its own name, and ModelNew as an empty class below it."""
# problem: chain
# expect: uncredited
# reasons: no_op_rewrite
# ruff: noqa

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Linear(n, n)
        self.b = nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))


class ModelNew(Model):
    """Fused linear, activation and normalisation."""
