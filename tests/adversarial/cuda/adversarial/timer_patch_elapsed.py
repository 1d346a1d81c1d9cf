"""Events report a hundredth of the time."""
# problem: chain
# expect: uncredited
# reasons: timer_patch
# ruff: noqa

import torch
import torch.nn as nn

_elapsed = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: 0.01 * _elapsed(self, end)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
