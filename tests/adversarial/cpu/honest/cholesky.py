"""Cholesky."""
# problem: solved
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.cholesky_solve(b, torch.linalg.cholesky(a))
