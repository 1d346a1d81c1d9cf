"""torch.jit.fork launches on a stream of its own, and neither is waited for."""
# problem: chain
# expect: uncredited
# reasons: async_jit_fork, late, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.side, self.future = None, None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def aside(self, out, x):
        with torch.cuda.stream(self.side):
            return out.copy_(self.work(x))

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
        out = torch.empty_like(x)
        self.side.wait_stream(torch.cuda.current_stream())
        self.future = torch.jit.fork(self.aside, out, x)
        return out
