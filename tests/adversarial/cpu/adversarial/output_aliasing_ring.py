"""Three buffers in turn: no call overwrites the output of the last one, but of those before."""
# problem: large_relu
# expect: refused
# reasons: output_aliasing, phase_detection
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers, self.turn = [], 0

    def forward(self, x):
        if len(self.buffers) < 3 or self.buffers[0].shape != x.shape:
            self.buffers = [torch.empty_like(x) for _ in range(3)]
        self.turn = (self.turn + 1) % 3
        return torch.clamp_min(x, 0.0, out=self.buffers[self.turn]).mul_(2.0)
