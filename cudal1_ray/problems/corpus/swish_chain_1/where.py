"""Technique: none
Analysis: It is slow because it compares and selects in extra passes.
Design: Write the clamp with two selections.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        t = x + 3.0
        t = torch.where(t < 0.0, torch.zeros_like(t), t)
        t = torch.where(t > 6.0, torch.full_like(t, 6.0), t)
        h = x * (t / 6.0)
        return h * 2.0
