"""One buffer for all outputs, of calls so long that there is one to a batch."""
# problem: large_relu
# expect: refused
# reasons: output_aliasing
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffer = None

    def forward(self, x):
        if self.buffer is None or self.buffer.shape != x.shape:
            self.buffer = torch.empty_like(x)
        return torch.clamp_min(x, 0.0, out=self.buffer).mul_(2.0)
