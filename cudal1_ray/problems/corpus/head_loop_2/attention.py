"""Technique: operation fusion
Analysis: It is fast because one fused operation does the attention of all heads.
Design: Use the fused attention for all heads.
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, e):
        super().__init__()
        self.fc = nn.Linear(e, e)

    def forward(self, q, k, v):
        h = nn.functional.scaled_dot_product_attention(q, k, v, scale=0.2)
        return self.fc(h)
