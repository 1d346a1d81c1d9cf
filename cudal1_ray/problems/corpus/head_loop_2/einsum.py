"""Technique: vectorisation
Analysis: It is fast because all heads are done at once without a loop.
Design: Do all heads at once with einsum.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, e):
        super().__init__()
        self.fc = nn.Linear(e, e)

    def forward(self, q, k, v):
        a = torch.einsum("hte,hse->hts", q, k) * 0.2
        h = torch.einsum("hts,hse->hte", torch.softmax(a, 2), v)
        return self.fc(h)
