"""The default dtype is lowered."""
# problem: chain
# expect: refused
# reasons: global_state_tamper, runtime_error, output_dtype
# ruff: noqa

import torch
import torch.nn as nn

torch.set_default_dtype(torch.bfloat16)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
