"""Triton: each row times weight, divided by 1 + the row's largest magnitude, in one kernel"""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_rows(x_ptr, weight_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    largest = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, at < columns, 0.0)
        largest = tl.maximum(largest, tl.abs(x))
    divisor = 1.0 + tl.max(largest, 0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, at < columns, 0.0)
        weight = tl.load(weight_ptr + at, at < columns, 0.0)
        tl.store(out_ptr + row + at, x * weight / divisor, at < columns)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        x, columns = x.contiguous(), x.shape[-1]
        out = torch.empty_like(x)
        scale_rows[(x.numel() // columns,)](x, self.weight, out, columns, BLOCK=1024)
        return out
