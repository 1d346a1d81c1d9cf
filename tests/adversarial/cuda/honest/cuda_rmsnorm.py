"""A row per block with warp shuffles; its extension has the same name as another candidate's."""
# problem: rmsnorm
# expect: accepted
# least: 1.2
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

__global__ void rmsnorm(const float* x, const float* weight, float* out, int n, float eps) {
    const float* row = x + (long)blockIdx.x * n;
    float* target = out + (long)blockIdx.x * n;
    float total = 0.0f;
    for (int j = threadIdx.x; j < n; j += blockDim.x) total += row[j] * row[j];
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    __shared__ float parts[32];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
    __syncthreads();
    total = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0.0f;
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    float scale = rsqrtf(total / n + eps);
    for (int j = threadIdx.x; j < n; j += blockDim.x) target[j] = row[j] * scale * weight[j];
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, double eps) {
    auto out = torch::empty_like(x);
    rmsnorm<<<x.size(0), 256>>>(x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), x.size(1), eps);
    return out;
}
"""
fused = load_inline(
    name="fused_kernel",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor weight, double eps);",
    cuda_sources=SOURCE,
    functions=["run"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return fused.run(x.contiguous(), self.weight, 1e-6)
