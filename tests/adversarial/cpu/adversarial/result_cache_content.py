"""Results by a fingerprint of the content."""
# problem: chain
# expect: uncredited
# reasons: result_cache, phase_detection, wrong_output, partial_compute
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.cache = {}

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        key = hash(tuple(x[:4, :4].flatten().tolist()))
        if key not in self.cache:
            self.cache[key] = self.work(x)
        return self.cache[key].clone()
