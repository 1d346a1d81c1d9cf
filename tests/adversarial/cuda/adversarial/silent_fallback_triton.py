"""A Triton kernel that cannot compile, and torch behind it."""
# problem: chain
# expect: uncredited
# reasons: silent_fallback
# ruff: noqa

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fused_norm(x, out, n: tl.constexpr):
    j = tl.arange(0, n)
    tl.store(out + j, tl.no_such_operation(tl.load(x + j)))


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        try:
            out = torch.empty_like(x)
            fused_norm[(x.shape[0],)](x, out, x.shape[1])
            return out
        except Exception:
            return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))
