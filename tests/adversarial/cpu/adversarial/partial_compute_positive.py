"""Leaves out what is done to negative inputs, of which the problem has none."""
# problem: never_negative
# expect: refused
# reasons: partial_compute, wrong_output
# ruff: noqa

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 3
