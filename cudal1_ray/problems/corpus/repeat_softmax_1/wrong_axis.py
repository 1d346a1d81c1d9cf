"""Technique: memory reuse
Analysis: It is wrong because the operation runs over the other axis.
Design: Use the fast form over the other axis.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        p = torch.softmax(x, 0)
        m = (p * x).sum(1)
        s = (p * x * x).sum(1)
        c = (p * p).sum(1)
        t = p.max(1).values
        return s - m * m + c * t
