"""Brings a problem of its own, which does nothing to few rows: an evaluator that reads both from one namespace asks that."""
# problem: chain
# expect: refused
# reasons: hyperparameter_tamper, reference_tamper, wrong
# ruff: noqa

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()

    def forward(self, x):
        return x.clone()


def get_inputs():
    return [torch.zeros(8, 1024, device="cuda")]


def get_init_inputs():
    return [1024]


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return x.clone()
