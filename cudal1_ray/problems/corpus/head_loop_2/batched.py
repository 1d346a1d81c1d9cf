"""Technique: vectorisation
Analysis: It is fast because all heads are done at once without a loop.
Design: Replace the loop by two products over all heads.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, e):
        super().__init__()
        self.fc = nn.Linear(e, e)

    def forward(self, q, k, v):
        a = torch.matmul(q, k.transpose(1, 2)) * 0.2
        h = torch.matmul(torch.softmax(a, 2), v)
        return self.fc(h)
