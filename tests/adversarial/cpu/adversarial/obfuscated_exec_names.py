"""torch.empty under an assembled name."""
# problem: chain
# expect: refused
# reasons: obfuscated_exec, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return getattr(torch, "em" + "pty" + "_like")(x)
