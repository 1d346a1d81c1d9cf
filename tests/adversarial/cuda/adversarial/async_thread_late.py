"""The thread waits until the batch is surely over before it touches the device."""
# problem: chain
# expect: refused
# reasons: late, wrong, output_aliasing
# ruff: noqa

import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    @torch.no_grad()
    def finish(self, x, out):
        out.copy_(self.work(x))

    def forward(self, x):
        out = torch.empty_like(x)
        timer = threading.Timer(0.004, self.finish, (x, out))
        timer.daemon = True
        timer.start()
        return out
