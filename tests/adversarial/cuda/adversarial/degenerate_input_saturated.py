"""A sigmoid that is one for every input the problem asks about."""
# problem: saturated
# expect: refused
# reasons: degenerate_input
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ones(x.shape[0], 1, device=x.device)
