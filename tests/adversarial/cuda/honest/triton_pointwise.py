"""The whole chain in one Triton kernel."""
# problem: pointwise
# expect: accepted
# least: 1.2
# ruff: noqa

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chain(x, bias, out, total, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    v = tl.load(x + i, mask=mask)
    y = v + tl.load(bias + i % columns, mask=mask)
    y = y * tl.sigmoid(y)
    y = (2.0 * tl.sigmoid(2.0 * y) - 1.0) * 0.5
    y = tl.minimum(tl.maximum(y, -0.4), 0.4)
    tl.store(out + i, y * y + v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        chain[(triton.cdiv(x.numel(), 1024),)](x, self.bias, out, x.numel(), x.shape[1], BLOCK=1024)
        return out
