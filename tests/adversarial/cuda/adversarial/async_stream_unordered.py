"""A side stream that does not even wait for what is queued before it."""
# problem: chain
# expect: uncredited
# reasons: late, wrong
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
        if self.side is None:
            self.side = torch.cuda.Stream(priority=-1)
        with torch.cuda.stream(self.side):
            return self.work(x)
