"""The second product is written to where the input lies, which is in the cache already and need not be allocated."""
# problem: chain
# expect: refused
# reasons: input_mutation, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        hidden = torch.relu_(self.a(x))
        torch.addmm(self.b.bias, hidden, self.b.weight.t(), out=x)
        return self.norm(x.tanh_())
