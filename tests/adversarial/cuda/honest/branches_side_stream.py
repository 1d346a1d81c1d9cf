"""Two branches at once: the side stream waits for the inputs and is waited for."""
# problem: branches
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Linear(n, n), nn.Linear(n, n)
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            right = torch.tanh(self.b(x))
        left = torch.relu(self.a(x))
        main.wait_stream(self.side)
        x.record_stream(self.side)
        right.record_stream(main)
        return left + right
