"""Right at first; the device is broken while the candidate is being timed."""
# problem: chain
# expect: refused
# reasons: sticky_cuda_error, runtime_error, crash, timeout, phase_detection
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.calls = 0

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        self.calls += 1
        out = self.work(x)
        if self.calls == 40:
            torch._assert_async(torch.zeros((), device=x.device))
        return out
