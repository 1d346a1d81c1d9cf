"""More buffers than any check keeps; what is zero in all outputs is written once."""
# problem: diagonal
# expect: refused
# reasons: stale_memory, output_aliasing, wrong
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers, self.turn = {}, 0

    def forward(self, x):
        if x.shape not in self.buffers:
            self.buffers[x.shape] = [x.new_zeros(*x.shape, x.shape[-1]) for _ in range(18)]
        ring = self.buffers[x.shape]
        self.turn = (self.turn + 1) % len(ring)
        torch.diagonal(ring[self.turn], dim1=-2, dim2=-1).copy_(torch.tanh(x))
        return ring[self.turn]
