"""Technique: operation fusion
Analysis: It is faster because one hard sigmoid replaces three passes.
Design: Use the fused hard sigmoid and one product.
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = nn.functional.hardsigmoid(x).mul_(x)
        return h * 2.0
