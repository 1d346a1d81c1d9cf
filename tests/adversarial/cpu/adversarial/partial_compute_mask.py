"""Leaves out a mask that is all ones."""
# problem: masked
# expect: refused
# reasons: partial_compute, wrong_output
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v)
