"""An index out of range: the device asserts, and every later call of the process fails."""
# problem: chain
# expect: refused
# reasons: sticky_cuda_error, runtime_error, crash, timeout
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
        return self.work(x)[torch.full((x.shape[0],), 1 << 20, device=x.device)]
