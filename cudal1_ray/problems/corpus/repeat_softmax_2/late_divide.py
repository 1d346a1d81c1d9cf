"""Technique: mathematical short-circuit
Analysis: It is fast because the division is done on the sums and not on every value.
Design: Sum the weighted exponentials first and divide the sums at the end.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x * 0.5)
        z = e * x
        r = 1.0 / e.sum(1)
        m = z.sum(1) * r
        a = z.abs_().sum(1) * r
        t = e.amax(1) * r
        c = e.mul_(e).sum(1) * r * r
        return torch.relu(m) * a + c + t
