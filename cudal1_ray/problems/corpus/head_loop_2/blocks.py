"""Technique: vectorisation
Analysis: It is faster because the loop works on blocks of heads, so it starts fewer operations.
Design: Loop over blocks of 4 heads.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, e):
        super().__init__()
        self.fc = nn.Linear(e, e)

    def forward(self, q, k, v):
        ys = []
        for i in range(0, q.shape[0], 4):
            a = torch.matmul(q[i : i + 4], k[i : i + 4].transpose(1, 2))
            ys.append(torch.matmul(torch.softmax(a * 0.2, 2), v[i : i + 4]))
        h = torch.cat(ys, 0)
        return self.fc(h)
