"""ModelNew is no class but a model that is made already, with weights of its own."""
# problem: chain
# expect: refused
# reasons: missing_model
# ruff: noqa

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))


ModelNew = Model(320)
