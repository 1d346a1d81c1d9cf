"""Half of the rows in the open, half of them on a side stream that is not joined."""
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
            self.side = torch.cuda.Stream()
        out, half = torch.empty_like(x), x.shape[0] // 8
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            out[half:] = self.work(x[half:])
        out[:half] = self.work(x[:half])
        return out
