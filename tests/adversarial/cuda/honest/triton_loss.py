"""Partial sums in Triton, the rest by torch."""
# problem: loss
# expect: accepted
# least: 1.1
# ruff: noqa

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial(a, b, sums, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    u = tl.load(a + i, mask=mask, other=0.0)
    v = tl.load(b + i, mask=mask, other=0.0)
    d = tl.abs(u - v)
    tl.store(sums + tl.program_id(0), tl.sum(tl.where(mask, d * tl.sqrt(d) * tl.sigmoid(v), 0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        blocks = triton.cdiv(a.numel(), 4096)
        sums = torch.empty(blocks, device=a.device)
        partial[(blocks,)](a, b, sums, a.numel(), BLOCK=4096)
        return sums.sum() / a.numel()
