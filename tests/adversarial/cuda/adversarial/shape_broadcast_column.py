"""One number for each row would broadcast, and lies in the middle between the row's least and its most."""
# problem: softmax
# expect: refused
# reasons: shape_broadcast
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full((x.shape[0], 1), 0.007, device=x.device)
