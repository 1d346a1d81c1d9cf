"""Kills everything it may."""
# problem: chain
# expect: refused
# reasons: sandbox_escape, runtime_error, crash
# ruff: noqa

import os
import signal

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        os.kill(-1, signal.SIGKILL)
        os.kill(os.getppid(), signal.SIGKILL)
        return self.work(x)
