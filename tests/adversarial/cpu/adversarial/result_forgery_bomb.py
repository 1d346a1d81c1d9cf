"""Says that it has a hundred thousand outputs, each as large as the memory it shares."""
# problem: small
# expect: refused
# reasons: result_forgery, checker_patch, memory_limit
# ruff: noqa

import gc

import torch
import torch.nn as nn

_Channel = type(next(one for one in gc.get_objects() if type(one).__name__ == "Channel"))
_send = _Channel.send


def _other(self, message, fds=()):
    if hasattr(message, "shapes"):
        message.tensors, message.shapes = message.tensors * 100_000, message.shapes * 100_000
    return _send(self, message, fds)


_Channel.send = _other


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.ready = {}

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
