"""The current stream becomes another one, so events on the old one measure nothing."""
# problem: chain
# expect: refused
# reasons: global_state_tamper, late, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        torch.cuda.set_stream(torch.cuda.Stream())

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
