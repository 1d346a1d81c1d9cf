"""A kernel that never ends, on a side stream: the output itself is right and ready."""
# problem: chain
# expect: refused
# reasons: timeout, async_stream, baseline_sabotage, leftover_process
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.side = None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        out = self.work(x)
        if self.side is None:
            self.side = torch.cuda.Stream()
            with torch.cuda.stream(self.side):
                torch.cuda._sleep(1 << 62)
        return out
