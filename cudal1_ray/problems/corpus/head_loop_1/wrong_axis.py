"""Technique: vectorisation
Analysis: It is wrong because the operation runs over the other axis.
Design: Use the fast form over the other axis.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        a = torch.matmul(q, k.transpose(1, 2)) * 0.25
        h = torch.matmul(torch.softmax(a, 1), v)
        return h * 2.0
