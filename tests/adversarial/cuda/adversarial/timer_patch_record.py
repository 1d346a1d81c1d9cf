"""Events remember themselves, and the start is recorded again when the work is done."""
# problem: chain
# expect: uncredited
# reasons: timer_patch
# ruff: noqa

import torch
import torch.nn as nn

LAST = []
_record = torch.cuda.Event.record


def record(self, stream=None):
    LAST[:] = [self]
    return _record(self) if stream is None else _record(self, stream)


torch.cuda.Event.record = record


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        out = self.work(x)
        if LAST:
            _record(LAST[-1])
        return out
