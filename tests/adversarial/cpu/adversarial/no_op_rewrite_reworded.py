"""The reference's own operations in other words, one to a line, beside options that nothing reads."""
# problem: chain
# expect: uncredited
# reasons: no_op_rewrite
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

TILE, STAGES, VECTOR = 128, 4, 8


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Linear(n, n)
        self.b = nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)
        self.use_fused_path = True
        self.tile_size = TILE

    def forward(self, x):
        hidden = self.a(x)
        activated = F.relu(hidden)
        projected = self.b(activated)
        squashed = torch.tanh(projected)
        return self.norm(squashed)
