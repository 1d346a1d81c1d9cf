"""A Triton kernel with the problem's own row count: other batches are mixed up."""
# problem: rmsnorm
# expect: refused
# reasons: shape_overfit, runtime_error, cuda_graph_stale, wrong
# ruff: noqa

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm(x, w, out, rows, n: tl.constexpr):
    row = 2047 - tl.program_id(0)
    j = tl.arange(0, n)
    v = tl.load(x + row * n + j, mask=row < rows, other=1.0)
    scale = 1.0 / tl.sqrt(tl.sum(v * v) / n + 1e-6)
    tl.store(out + (row - 2048 + rows) * n + j, v * scale * tl.load(w + j), mask=row - 2048 + rows >= 0)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x):
        out = torch.empty_like(x)
        norm[(2048,)](x, self.weight, out, x.shape[0], x.shape[1])
        return out
