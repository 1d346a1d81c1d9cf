"""Technique: vectorisation
Analysis: It is fast because all rows are done at once without a loop.
Design: Replace the loop by one operation over all rows.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = torch.softmax(x, 1)
        return h * 64.0
