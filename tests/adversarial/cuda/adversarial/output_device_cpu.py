"""Everything is computed and handed over on the host, where no event looks."""
# problem: chain
# expect: refused
# reasons: output_device, late, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.host = None

    def forward(self, x):
        if self.host is None:
            self.host = [
                one.detach().cpu()
                for one in (self.a.weight, self.a.bias, self.b.weight, self.b.bias, self.norm.weight, self.norm.bias)
            ]
        w, c, v, d, g, h = self.host
        f = nn.functional
        return f.layer_norm(torch.tanh(f.linear(torch.relu(f.linear(x.cpu(), w, c)), v, d)), x.shape[-1:], g, h)
