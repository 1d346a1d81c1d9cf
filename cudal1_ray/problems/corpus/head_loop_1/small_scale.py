"""Technique: mathematical short-circuit
Analysis: It is fast because all heads are done at once and the scale is put on the small input.
Design: Scale the queries first and do all heads at once.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        a = torch.bmm(q * 0.25, k.transpose(1, 2))
        h = torch.bmm(torch.softmax(a, 2), v)
        return h * 2.0
