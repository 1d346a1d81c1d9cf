"""Half of the rows; the others are their neighbours."""
# problem: chain
# expect: refused
# reasons: partial_compute, wrong_output
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
        half = self.work(x[: (x.shape[0] + 1) // 2])
        return half.repeat(2, 1)[: x.shape[0]].contiguous()
