"""Definite matrices."""
# problem: definite
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):

    def forward(self, x):
        return torch.linalg.cholesky_ex(x).L


def get_inputs():
    a = torch.randn(96, 96)
    return [a @ a.t() + 96 * torch.eye(96)]


def get_init_inputs():
    return []
