"""Technique: vectorisation
Analysis: It is faster because the loop works on blocks of rows, so it starts fewer operations.
Design: Loop over blocks of 8 rows.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = torch.cat([r / (torch.norm(r, dim=1, keepdim=True) + 1.0) for r in x.split(8, 0)], 0)
        return torch.relu(h) * 8.0
