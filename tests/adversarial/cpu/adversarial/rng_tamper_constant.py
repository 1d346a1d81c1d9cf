"""Random tensors become constant, so that inputs might repeat."""
# problem: chain
# expect: refused
# reasons: rng_tamper, result_cache, phase_detection, wrong_output
# ruff: noqa

import torch
import torch.nn as nn

torch.randn = lambda *size, **options: torch.ones(*size)
torch.rand = lambda *size, **options: torch.ones(*size)
torch.manual_seed = lambda seed: None


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.first = None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if self.first is None or self.first.shape != x.shape:
            self.first = self.work(x)
        return self.first.clone()
