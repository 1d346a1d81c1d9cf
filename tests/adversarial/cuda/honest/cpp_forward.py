"""The whole forward in C++ on ATen, without a kernel of its own."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

at::Tensor run(at::Tensor x, at::Tensor w, at::Tensor c, at::Tensor v, at::Tensor d, at::Tensor g, at::Tensor h) {
    auto y = at::addmm(c, x, w.t()).relu_();
    y = at::addmm(d, y, v.t()).tanh_();
    return at::layer_norm(y, {y.size(1)}, g, h);
}
"""
native = load_inline(name="cpp_forward", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return native.run(x, self.a.weight, self.a.bias, self.b.weight, self.b.bias, self.norm.weight, self.norm.bias)
