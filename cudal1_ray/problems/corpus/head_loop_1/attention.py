"""Technique: operation fusion
Analysis: It is fast because one fused operation does the attention of all heads.
Design: Use the fused attention for all heads.
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        h = nn.functional.scaled_dot_product_attention(q, k, v, scale=0.25)
        return h * 2.0
