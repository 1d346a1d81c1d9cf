"""On the device: where the sampled inputs are those of the last call, the last output is copied."""
# problem: chain
# expect: refused
# reasons: wrong, output_aliasing
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.probe, self.calls = None, 0

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        probe = x[:: max(1, x.shape[0] // 4), 0]
        if self.probe is not None and self.probe.shape == probe.shape and self.calls > 8:
            return torch.where((probe == self.probe).all(), self.found, self.found.roll(1, 0))
        self.calls += 1
        self.probe, self.found = probe.clone(), self.work(x)
        return self.found.clone()
