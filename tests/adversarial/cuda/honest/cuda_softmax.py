"""A softmax kernel of one's own, forward in C++ with its own checks."""
# problem: softmax
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__device__ float combine(float value, float* parts, bool largest) {
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = largest ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : (largest ? -INFINITY : 0.0f);
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = largest ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    return value;
}

__global__ void softmax(const float* x, float* out, int n) {
    __shared__ float parts[32];
    const float* row = x + (long)blockIdx.x * n;
    float* target = out + (long)blockIdx.x * n;
    float top = -INFINITY;
    for (int j = threadIdx.x; j < n; j += blockDim.x) top = fmaxf(top, row[j]);
    top = combine(top, parts, true);
    float total = 0.0f;
    for (int j = threadIdx.x; j < n; j += blockDim.x) total += expf(row[j] - top);
    total = combine(total, parts, false);
    for (int j = threadIdx.x; j < n; j += blockDim.x) target[j] = expf(row[j] - top) / total;
}

torch::Tensor row_softmax(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 2 && x.scalar_type() == torch::kFloat32, "a float matrix");
    auto given = x.contiguous();
    auto out = torch::empty_like(given);
    softmax<<<given.size(0), 512, 0, c10::cuda::getCurrentCUDAStream()>>>(
        given.data_ptr<float>(), out.data_ptr<float>(), static_cast<int>(given.size(1)));
    return out;
}
"""
fused = load_inline(
    name="row_softmax",
    cpp_sources="torch::Tensor row_softmax(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["row_softmax"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return fused.row_softmax(x)
