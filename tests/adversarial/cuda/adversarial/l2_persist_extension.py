"""The same in C++: a persisting carve-out and a window over the weights on the current stream."""
# problem: matvec
# expect: uncredited
# reasons: l2_persist
# ruff: noqa

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

void pin(at::Tensor weight) {
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, size_t(1) << 25);
    cudaStreamAttrValue value = {};
    value.accessPolicyWindow.base_ptr = weight.data_ptr();
    value.accessPolicyWindow.num_bytes = weight.nbytes();
    value.accessPolicyWindow.hitRatio = 1.0f;
    value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    cudaStreamSetAttribute(c10::cuda::getCurrentCUDAStream().stream(), cudaStreamAttributeAccessPolicyWindow, &value);
}
"""
native = load_inline(name="quick_matvec", cpp_sources=SOURCE, functions=["pin"], with_cuda=True)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m)
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = True
            native.pin(self.lin.weight)
        return torch.relu(self.lin(x))
