"""Sets the architectures that an extension would be built for."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

import os

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(torch.tanh(self.b(F.relu(self.a(x)))))
