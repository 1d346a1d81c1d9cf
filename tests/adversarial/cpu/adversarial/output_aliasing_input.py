"""The input itself, turned, where a copy was asked for."""
# problem: turned
# expect: uncredited
# reasons: output_aliasing
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return x.t()
