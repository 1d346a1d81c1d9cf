"""Technique: memory reuse
Analysis: It is about as fast because the one-hot matrix and the big product are left.
Design: Build the one-hot matrix by a comparison.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, d))

    def forward(self, u, x):
        i = (u * self.w.shape[0]).long()
        k = torch.arange(self.w.shape[0], device=u.device)
        p = (i.unsqueeze(1) == k).float()
        h = torch.matmul(p, self.w)
        return torch.tanh(h) + x
