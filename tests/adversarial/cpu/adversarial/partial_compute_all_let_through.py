"""The problem's own mask never hides anything."""
# problem: all_let_through
# expect: refused
# reasons: partial_compute, wrong_output
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, q, k, mask):
        return F.softmax(q @ k.transpose(-2, -1), dim=-1)
