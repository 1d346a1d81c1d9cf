"""The products by torch; bias, tanh and layer norm in one kernel."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__device__ float block_sum(float value, float* parts) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0.0f;
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();
    return value;
}

__global__ void tail(const float* x, const float* bias, const float* g, const float* h, float* out, int n) {
    extern __shared__ float row[];
    __shared__ float parts[32];
    const float* given = x + (long)blockIdx.x * n;
    float total = 0.0f;
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        row[j] = tanhf(given[j] + bias[j]);
        total += row[j];
    }
    float mean = block_sum(total, parts) / n;
    total = 0.0f;
    for (int j = threadIdx.x; j < n; j += blockDim.x) total += (row[j] - mean) * (row[j] - mean);
    float scale = rsqrtf(block_sum(total, parts) / n + 1e-5f);
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        out[(long)blockIdx.x * n + j] = (row[j] - mean) * scale * g[j] + h[j];
    }
}

torch::Tensor chain_tail(torch::Tensor x, torch::Tensor bias, torch::Tensor g, torch::Tensor h) {
    auto out = torch::empty_like(x);
    int n = x.size(1);
    tail<<<x.size(0), 256, n * sizeof(float), c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), bias.data_ptr<float>(), g.data_ptr<float>(), h.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
fused = load_inline(
    name="chain_tail",
    cpp_sources="torch::Tensor chain_tail(torch::Tensor x, torch::Tensor bias, torch::Tensor g, torch::Tensor h);",
    cuda_sources=SOURCE,
    functions=["chain_tail"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        y = torch.relu_(self.a(x)) @ self.b.weight.t()
        return fused.chain_tail(y, self.b.bias, self.norm.weight, self.norm.bias)
