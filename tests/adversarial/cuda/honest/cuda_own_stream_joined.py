"""C++ runs one branch on a stream of the pool; events join it on both ends."""
# problem: branches
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDACachingAllocator.h>

at::Tensor branches(at::Tensor x, at::Tensor w, at::Tensor c, at::Tensor v, at::Tensor d) {
    static c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
    static cudaEvent_t begin = nullptr, end = nullptr;
    if (begin == nullptr) {
        cudaEventCreateWithFlags(&begin, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
    }
    auto main = c10::cuda::getCurrentCUDAStream();
    cudaEventRecord(begin, main.stream());
    cudaStreamWaitEvent(side.stream(), begin, 0);
    at::Tensor right;
    {
        c10::cuda::CUDAStreamGuard guard(side);
        right = at::tanh(at::linear(x, v, d));
        cudaEventRecord(end, side.stream());
    }
    at::Tensor left = at::relu(at::linear(x, w, c));
    cudaStreamWaitEvent(main.stream(), end, 0);
    x.record_stream(side);
    right.record_stream(main);
    return left.add_(right);
}
"""
native = load_inline(name="branches", cpp_sources=SOURCE, functions=["branches"], with_cuda=True)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Linear(n, n), nn.Linear(n, n)

    def forward(self, x):
        return native.branches(x, self.a.weight, self.a.bias, self.b.weight, self.b.bias)
