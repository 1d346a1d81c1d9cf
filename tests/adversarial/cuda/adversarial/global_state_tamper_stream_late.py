"""The current stream is changed in the middle of forward, from some call on."""
# problem: chain
# expect: uncredited
# reasons: global_state_tamper, late, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.calls, self.side = 0, None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        self.calls += 1
        if self.calls > 12:
            if self.side is None:
                self.side = torch.cuda.Stream()
            self.side.wait_stream(torch.cuda.current_stream())
            torch.cuda.set_stream(self.side)
        return self.work(x)
