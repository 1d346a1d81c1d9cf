"""Technique: memory reuse
Analysis: It is fast because the softmax is computed once and the steps write in place.
Design: Compute the softmax once and run the products in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        p = torch.softmax(x, 1)
        z = p * x
        m = z.sum(1)
        s = z.mul_(x).sum(1)
        t = p.amax(1)
        c = p.mul_(p).sum(1)
        return s - m * m + c * t
