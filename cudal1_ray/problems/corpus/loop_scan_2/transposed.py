"""Technique: memory layout
Analysis: It is faster because each step reads contiguous memory, but the loop is left.
Design: Transpose the input and loop over its rows.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        z = x.t().contiguous()
        s = torch.zeros_like(z[0])
        ys = []
        for t in range(z.shape[0]):
            s = s + z[t] * z[t]
            ys.append(s)
        h = torch.stack(ys, 0).t()
        return torch.sqrt(h + 1.0)
