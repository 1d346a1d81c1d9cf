"""A diagonal matrix times a matrix is a scaling of rows."""
# problem: diag
# expect: accepted
# least: 2.0
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a.unsqueeze(1) * b
