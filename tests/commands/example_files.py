"""A problem and a candidate that is right, as the files that `cudal1 evaluate` takes; and a coarse measurement."""

from __future__ import annotations

from tests.measured_once import MEASURED_ONCE

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.relu(x) * 2 + 1)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
"""
HONEST = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).mul_(2).add_(1).tanh_()
"""
QUICK = [f"evaluation.timing.{key}" for key in ("budget_s=0.3", "min_pairs=6", "half_width=0.1")]
QUICK += MEASURED_ONCE
