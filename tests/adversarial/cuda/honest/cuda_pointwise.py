"""The whole chain in one CUDA kernel, four elements at a time."""
# problem: pointwise
# expect: accepted
# least: 1.2
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__device__ __forceinline__ float one(float x, float b) {
    float y = x + b;
    y = y / (1.0f + expf(-y));
    y = tanhf(y) * 0.5f;
    y = fminf(fmaxf(y, -0.4f), 0.4f);
    return y * y + x;
}

__global__ void chain(const float4* x, const float4* bias, float4* out, long total, int columns) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= total) return;
    float4 v = x[i], b = bias[i % columns];
    out[i] = make_float4(one(v.x, b.x), one(v.y, b.y), one(v.z, b.z), one(v.w, b.w));
}

torch::Tensor run(torch::Tensor x, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.size(1) % 4 == 0, "a contiguous matrix of width 4k");
    auto out = torch::empty_like(x);
    long total = x.numel() / 4;
    chain<<<(total + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<const float4*>(bias.data_ptr<float>()),
        reinterpret_cast<float4*>(out.data_ptr<float>()), total, static_cast<int>(x.size(1) / 4));
    return out;
}
"""
fused = load_inline(
    name="fused_kernel",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor bias);",
    cuda_sources=SOURCE,
    functions=["run"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return fused.run(x.contiguous(), self.bias)
