"""A mode over all of torch is left switched on and computes pending outputs when they are touched."""
# problem: chain
# expect: refused
# reasons: checker_patch, late, wrong
# ruff: noqa

import torch
import torch.nn as nn

from torch.overrides import TorchFunctionMode

PENDING = {}


class Watcher(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        for one in args:
            if isinstance(one, torch.Tensor) and id(one) in PENDING:
                model, x, out = PENDING.pop(id(one))
                with torch._C.DisableTorchFunction():
                    out.copy_(model.norm(torch.tanh(model.b(torch.relu(model.a(x))))))
        return function(*args, **(kwargs or {}))


Watcher().__enter__()


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        out = torch.empty_like(x)
        PENDING[id(out)] = (self, x, out)
        return out
