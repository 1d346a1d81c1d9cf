"""An extension of the honest one's name and functions that does nothing: the second to load it gets the wrong one."""
# problem: chain
# expect: refused
# reasons: wrong_output, wrong
# control: cuda_chain_tail
# ruff: noqa

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor chain_tail(torch::Tensor x, torch::Tensor bias, torch::Tensor g, torch::Tensor h);"
SOURCE = r"""
#include <torch/extension.h>

torch::Tensor chain_tail(torch::Tensor x, torch::Tensor bias, torch::Tensor g, torch::Tensor h) { return x; }
"""
native = load_inline(name="chain_tail", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["chain_tail"])


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        y = torch.relu_(self.a(x)) @ self.b.weight.t()
        return native.chain_tail(y, self.b.bias, self.norm.weight, self.norm.bias)
