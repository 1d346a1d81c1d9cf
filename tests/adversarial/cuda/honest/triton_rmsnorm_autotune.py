"""A row per program, autotuned over warps."""
# problem: rmsnorm
# expect: accepted
# least: 1.2
# ruff: noqa

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (4, 8, 16)], key=["n"])
@triton.jit
def rmsnorm(x, weight, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + j, mask=j < n, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(v * v, axis=0) / n + eps)
    tl.store(out + row * n + j, v * scale * tl.load(weight + j, mask=j < n), mask=j < n)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rmsnorm[(x.shape[0],)](x, self.weight, out, x.shape[1], 1e-6, BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
