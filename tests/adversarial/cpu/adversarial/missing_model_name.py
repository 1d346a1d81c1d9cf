"""Another class name."""

# problem: chain
# expect: refused
# reasons: missing_model
# ruff: noqa
import torch.nn as nn


class Model2(nn.Module):
    def forward(self, x):
        return x
