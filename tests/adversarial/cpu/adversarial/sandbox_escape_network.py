"""Phones home."""
# problem: chain
# expect: refused
# reasons: sandbox_escape, runtime_error, timeout
# ruff: noqa

import socket

import torch
import torch.nn as nn

socket.create_connection(("127.0.0.1", 22), timeout=1.0)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
