"""A Python thread fills the output after forward has returned."""
# problem: chain
# expect: uncredited
# reasons: late, wrong
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

    def forward(self, x):
        out = torch.empty_like(x)
        threading.Thread(target=lambda: out.copy_(self.work(x)), daemon=True).start()
        return out
