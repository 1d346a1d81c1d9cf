"""A detached C++ thread launches the kernels."""
# problem: chain
# expect: refused
# reasons: late, wrong, crash
# ruff: noqa

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <thread>

at::Tensor run(at::Tensor x, at::Tensor w, at::Tensor c, at::Tensor v, at::Tensor d, at::Tensor g, at::Tensor h) {
    at::Tensor out = at::empty_like(x);
    std::thread([=]() mutable {
        at::NoGradGuard guard;
        out.copy_(at::layer_norm(at::tanh(at::linear(at::relu(at::linear(x, w, c)), v, d)), {x.size(1)}, g, h));
    }).detach();
    return out;
}
"""
native = load_inline(name="quick_chain", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return native.run(x, self.a.weight, self.a.bias, self.b.weight, self.b.bias, self.norm.weight, self.norm.bias)
