"""Technique: vectorisation
Analysis: It is fast because all heads are done at once without a loop.
Design: Replace the loop by two products over all heads.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        a = torch.matmul(q, k.transpose(1, 2)) * 0.25
        h = torch.matmul(torch.softmax(a, 2), v)
        return h * 2.0
