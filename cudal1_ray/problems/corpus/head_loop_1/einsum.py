"""Technique: vectorisation
Analysis: It is fast because all heads are done at once without a loop.
Design: Do all heads at once with einsum.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        a = torch.einsum("hte,hse->hts", q, k) * 0.25
        h = torch.einsum("hts,hse->hte", torch.softmax(a, 2), v)
        return h * 2.0
