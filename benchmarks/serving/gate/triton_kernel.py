"""The gate in one Triton kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def gate_kernel(x_ptr, bias_ptr, out_ptr, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n, 0.0)
    bias = tl.load(bias_ptr + at % columns, at < n, 0.0)
    tl.store(out_ptr + at, tl.sigmoid(x + bias) * tl.maximum(x, 0.0), at < n)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        gate_kernel[(triton.cdiv(x.numel(), 1024),)](x, self.bias, out, x.numel(), x.shape[-1], BLOCK=1024)
        return out
