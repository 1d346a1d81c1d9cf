"""Windows that overlap, though no stride is zero."""
# problem: windows
# expect: refused
# reasons: output_aliasing
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone().unfold(1, 64, 1)
