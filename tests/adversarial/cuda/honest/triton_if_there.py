"""Triton where it can be imported, torch where it cannot: decided once, at import."""
# problem: rmsnorm
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def scale_rows(x, weight, out, n, eps, BLOCK: tl.constexpr):
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
        if triton is None:
            return torch.rms_norm(x, x.shape[-1:], self.weight, 1e-6)
        x = x.contiguous()
        out = torch.empty_like(x)
        scale_rows[(x.shape[0],)](x, self.weight, out, x.shape[1], 1e-6, BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
