"""Many blocks of the output's size; the first that looks like a normalised answer is returned."""
# problem: chain
# expect: refused
# reasons: wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        blocks = [torch.empty_like(x) for _ in range(24)]
        best = max(blocks, key=lambda one: -abs(float(one[0].var()) - 1.0) if float(one[0].abs().max()) > 0 else -9e9)
        return best
