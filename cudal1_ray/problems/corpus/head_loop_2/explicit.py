"""Technique: none
Analysis: It is slow because a Python loop starts many small operations.
Design: Loop over the heads and write the softmax in explicit steps.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, e):
        super().__init__()
        self.fc = nn.Linear(e, e)

    def forward(self, q, k, v):
        ys = []
        for i in range(q.shape[0]):
            e = torch.exp(torch.matmul(q[i], k[i].t()) * 0.2)
            s = e / e.sum(1, keepdim=True)
            ys.append(torch.matmul(s, v[i]))
        h = torch.stack(ys, 0)
        return self.fc(h)
