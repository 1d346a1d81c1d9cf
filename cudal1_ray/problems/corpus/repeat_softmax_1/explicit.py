"""Technique: none
Analysis: It is about as fast because the softmax is still repeated, in explicit steps.
Design: Write the softmax as exp and sum each time.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x)
        m = ((e / e.sum(1, keepdim=True)) * x).sum(1)
        e = torch.exp(x)
        s = ((e / e.sum(1, keepdim=True)) * x * x).sum(1)
        e = torch.exp(x)
        c = ((e / e.sum(1, keepdim=True)) * (e / e.sum(1, keepdim=True))).sum(1)
        e = torch.exp(x)
        t = (e / e.sum(1, keepdim=True)).max(1).values
        return s - m * m + c * t
