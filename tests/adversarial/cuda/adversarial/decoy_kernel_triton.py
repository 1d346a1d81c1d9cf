"""A Triton kernel writes to a scratch of its own, torch does the work."""
# problem: chain
# expect: uncredited
# reasons: decoy_kernel
# ruff: noqa

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fused_norm(x, out, n: tl.constexpr):
    j = tl.arange(0, n)
    tl.store(out + j, tl.maximum(tl.load(x + j), 0.0))


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        fused_norm[(1,)](x, torch.empty(256, device=x.device), 256)
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))
