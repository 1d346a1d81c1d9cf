"""An operator of the honest one's name that does nothing, registered with torch itself: the name is taken from then on."""
# problem: chain
# expect: refused
# reasons: wrong_output, partial_compute
# ruff: noqa

import torch
import torch.nn as nn

library = torch.library.Library("chain_tail", "DEF")
library.define("tail(Tensor x) -> Tensor")
library.impl("tail", lambda x: x, "CPU")


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(torch.tanh(self.b(torch.ops.chain_tail.tail(self.a(x)))))
