"""The reference, renamed and commented."""

# problem: chain
# expect: uncredited
# reasons: no_op_rewrite
# ruff: noqa
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """Highly optimised."""

    def __init__(self, n):
        super().__init__()  # fused
        self.a = nn.Linear(n, n)
        self.b = nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)

    def forward(self, x):
        # the magic happens here
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))
