"""C++ runs the whole model on a stream from torch's own pool and does not join it."""
# problem: chain
# expect: uncredited
# reasons: late, wrong
# ruff: noqa

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

at::Tensor run(at::Tensor x, at::Tensor w, at::Tensor c, at::Tensor v, at::Tensor d, at::Tensor g, at::Tensor h) {
    static c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(true);
    static cudaEvent_t ready = nullptr;
    if (ready == nullptr) cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
    cudaEventRecord(ready, c10::cuda::getCurrentCUDAStream().stream());
    cudaStreamWaitEvent(side.stream(), ready, 0);
    c10::cuda::CUDAStreamGuard guard(side);
    return at::layer_norm(at::tanh(at::linear(at::relu(at::linear(x, w, c)), v, d)), {x.size(1)}, g, h);
}
"""
native = load_inline(name="quick_chain", cpp_sources=SOURCE, functions=["run"], with_cuda=True)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return native.run(x, self.a.weight, self.a.bias, self.b.weight, self.b.bias, self.norm.weight, self.norm.bias)
