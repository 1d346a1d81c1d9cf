"""A view of the input that begins where torch sees no storage of the input's."""
# problem: rest
# expect: refused
# reasons: output_aliasing
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.numpy()[1:])
