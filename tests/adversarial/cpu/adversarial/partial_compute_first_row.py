"""Looks whether the first row's mask hides anything, and leaves out all of them if not."""
# problem: all_let_through
# expect: refused
# reasons: partial_compute, wrong_output
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, q, k, mask):
        scores = q @ k.transpose(-2, -1)
        if not mask[0].all():
            scores = scores.masked_fill(~mask, -1e9)
        return F.softmax(scores, dim=-1)
