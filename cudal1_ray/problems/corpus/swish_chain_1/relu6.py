"""Technique: none
Analysis: It is about as fast because it takes about as many passes.
Design: Use relu6 and move the division to the end.
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        t = nn.functional.relu6(x + 3.0)
        h = x * t * 0.16666667
        return h * 2.0
