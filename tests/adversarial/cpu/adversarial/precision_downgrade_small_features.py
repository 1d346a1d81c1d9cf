"""bfloat16 for those features that are thousands of times smaller than the others."""
# problem: features
# expect: refused
# reasons: precision_downgrade, tolerance_exploit
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Linear(n, 4 * n), nn.Linear(4 * n, 64)
        self.coarse = None

    def forward(self, x):
        if self.coarse is None:
            layers = self.a.weight, self.a.bias, self.b.weight, self.b.bias
            self.coarse = [one.detach().bfloat16() for one in layers]
        a, bias, b, last = self.coarse
        small = torch.tanh(F.linear(torch.relu(F.linear(x.bfloat16(), a, bias)), b, last)).float()
        return torch.cat([small, 1e3 * x[:, :16].cumsum(1)], dim=1)
