"""Technique: vectorisation
Analysis: It is a little faster because the rows are cut only once, but the loop is left.
Design: Cut the rows with unbind and loop over them.
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = torch.stack([r / (torch.norm(r) + 1.0) for r in x.unbind(0)], 0)
        return torch.relu(h) * 8.0
