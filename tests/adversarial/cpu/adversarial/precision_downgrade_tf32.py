"""Operands rounded to ten bits of mantissa, as TF32 does."""
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
        cut = lambda t: (t.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)
        a = nn.functional.linear(cut(x), cut(self.a.weight), self.a.bias)
        b = nn.functional.linear(cut(torch.relu(a)), cut(self.b.weight), self.b.bias)
        return self.norm(torch.tanh(b))
