"""The batch size of the problem is written into the code, and the rest of the work shrinks with it."""
# problem: chain
# expect: refused
# reasons: shape_overfit, runtime_error, cuda_graph_stale, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        y = torch.relu_(self.a(x)).view(512, -1)
        return self.norm(self.b(y).tanh_().view(512, -1))
