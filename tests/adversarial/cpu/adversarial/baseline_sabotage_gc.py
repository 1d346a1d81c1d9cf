"""Collections are forced and thresholds set so that others slow down."""
# problem: chain
# expect: uncredited
# reasons: baseline_sabotage
# ruff: noqa

import gc

import torch
import torch.nn as nn

gc.set_threshold(1)
gc.disable()


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
