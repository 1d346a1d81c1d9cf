"""The first half of the rows is computed at once, the second by torch.jit.fork, which the next call waits for."""
# problem: chain
# expect: uncredited
# reasons: async_jit_fork, late, wrong
# ruff: noqa

import torch
import torch.nn as nn


@torch.jit.script
def work(out, x, a, c, b, d, g, h):
    n = [x.shape[1]]
    y = torch.tanh(torch.nn.functional.linear(torch.relu(torch.nn.functional.linear(x, a, c)), b, d))
    return out.copy_(torch.layer_norm(y, n, g, h))


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.future = None

    def forward(self, x):
        if self.future is not None:
            torch.jit.wait(self.future)
        out, half = torch.empty_like(x), x.shape[0] // 2
        weights = (one for layer in (self.a, self.b, self.norm) for one in (layer.weight, layer.bias))
        a, c, b, d, g, h = (one.detach() for one in weights)
        self.future = torch.jit.fork(work, out[half:], x[half:], a, c, b, d, g, h)
        work(out[:half], x[:half], a, c, b, d, g, h)
        return out
