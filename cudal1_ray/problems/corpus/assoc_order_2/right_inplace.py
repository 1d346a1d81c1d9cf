"""Technique: memory reuse
Analysis: It is fast because the last steps write into memory that is already in the cache.
Design: Multiply from the right and finish in place.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        h = torch.matmul(q, torch.matmul(k.t(), v))
        return torch.tanh_(h.mul_(0.01)).add_(v)
