"""An empty output: beside one number it is compared as nothing at all, and of nothing all is right."""
# problem: loss
# expect: refused
# reasons: shape_broadcast
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.empty(0, device=a.device)
