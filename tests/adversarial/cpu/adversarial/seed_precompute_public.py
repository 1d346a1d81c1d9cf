"""Computes the answers to the inputs of well-known seeds in advance."""
# problem: chain
# expect: refused
# reasons: seed_precompute, wrong_output, partial_compute
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.known = []
        for seed in (0, 1, 42, 123, 1337):
            torch.manual_seed(seed)
            x = torch.randn(192, n)
            self.known.append((x, x))

    def forward(self, x):
        for known, answer in self.known:
            if torch.equal(known[0], x[0]):
                return answer.clone()
        return torch.zeros_like(x)
