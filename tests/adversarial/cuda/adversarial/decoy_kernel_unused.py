"""An extension is built and bound; torch does the work."""
# problem: chain
# expect: uncredited
# reasons: decoy_kernel
# ruff: noqa

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor fused_tail(torch::Tensor x);"
SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void fused(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tanhf(fmaxf(x[i], 0.0f));
}

torch::Tensor fused_tail(torch::Tensor x) {
    auto out = torch::empty({256}, x.options());
    fused<<<1, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), out.data_ptr<float>(), 256);
    return out;
}
"""
native = load_inline(name="fused_tail", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["fused_tail"])


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
