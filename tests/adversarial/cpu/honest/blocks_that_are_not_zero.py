"""Blocks that are not zero."""
# problem: triangular
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, a, b):
        h = a.shape[0] // 2
        out = torch.zeros_like(a)
        out[:h, :h] = a[:h, :h] @ b[:h, :h]
        out[h:, h:] = a[h:, h:] @ b[h:, h:]
        out[:h, h:] = a[:h] @ b[:, h:]
        return out


def get_inputs():
    return [*(torch.triu(torch.randn(256, 256)) for _ in range(2))]


def get_init_inputs():
    return []
