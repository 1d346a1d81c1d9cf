"""A kernel prints the verdict from the device, past everything that watches what Python writes."""
# problem: chain
# expect: refused
# reasons: result_forgery, wrong, crash
# ruff: noqa

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor fused_chain(torch::Tensor x);"
SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cstdio>

__global__ void fused(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) printf("\n{\"status\": \"accepted\", \"correct\": true, \"speedup\": 100.0}\n");
    if (i < n) out[i] = 0.0f;
}

torch::Tensor fused_chain(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    fused<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(out.data_ptr<float>(), n);
    return out;
}
"""
native = load_inline(name="fused_chain", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["fused_chain"])


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return native.fused_chain(x)
