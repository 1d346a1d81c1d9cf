"""The output is zero on the problem's own inputs, so zero it is."""
# problem: constant
# expect: refused
# reasons: degenerate_input
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros(x.shape[0], 1, device=x.device)
