"""Technique: operation fusion
Analysis: It is wrong because one constant of the reference is changed.
Design: Use the fast form with another constant.
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, e):
        super().__init__()
        self.fc = nn.Linear(e, e)

    def forward(self, q, k, v):
        h = nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
        return self.fc(h)
