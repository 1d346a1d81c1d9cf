"""Technique: memory reuse
Analysis: It is about as fast because the one-hot matrix and the big product are left.
Design: Build the one-hot matrix by a comparison.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, u, w):
        i = (u * w.shape[0]).long()
        k = torch.arange(w.shape[0], device=u.device)
        p = (i.unsqueeze(1) == k).float()
        h = torch.matmul(p, w)
        return torch.relu(h) * 2.0
