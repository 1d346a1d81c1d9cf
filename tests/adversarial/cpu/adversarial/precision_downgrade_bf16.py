"""Everything in bfloat16, then back."""
# problem: chain
# expect: refused
# reasons: precision_downgrade, tolerance_exploit
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        w = lambda layer: (layer.weight.bfloat16(), layer.bias.bfloat16())
        h = torch.relu(nn.functional.linear(x.bfloat16(), *w(self.a)))
        return self.norm(torch.tanh(nn.functional.linear(h, *w(self.b))).float())
