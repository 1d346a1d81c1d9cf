"""Two kernels: partial sums of many blocks, then one block over them."""
# problem: loss
# expect: accepted
# least: 1.1
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>

__device__ float block_sum(float value) {
    __shared__ float parts[32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.0f;
    if (threadIdx.x < 32) {
        for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    }
    return value;
}

__global__ void partial(const float* a, const float* b, float* sums, long n) {
    float total = 0.0f;
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) {
        float d = fabsf(a[i] - b[i]);
        total += d * sqrtf(d) / (1.0f + expf(-b[i]));
    }
    total = block_sum(total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

__global__ void finish(const float* sums, float* out, int count, float n) {
    float total = 0.0f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) total += sums[i];
    total = block_sum(total);
    if (threadIdx.x == 0) out[0] = total / n;
}

torch::Tensor loss(torch::Tensor a, torch::Tensor b) {
    const int blocks = 1024;
    auto sums = torch::empty({blocks}, a.options());
    auto out = torch::empty({}, a.options());
    auto stream = c10::cuda::getCurrentCUDAStream();
    partial<<<blocks, 256, 0, stream>>>(a.data_ptr<float>(), b.data_ptr<float>(), sums.data_ptr<float>(), a.numel());
    finish<<<1, 256, 0, stream>>>(sums.data_ptr<float>(), out.data_ptr<float>(), blocks, static_cast<float>(a.numel()));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""
fused = load_inline(
    name="loss_kernels",
    cpp_sources="torch::Tensor loss(torch::Tensor a, torch::Tensor b);",
    cuda_sources=SOURCE,
    functions=["loss"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return fused.loss(a.contiguous(), b.contiguous())
