"""The extension does not build, silently, and torch does the work."""
# problem: chain
# expect: uncredited
# reasons: silent_fallback, compile_error, decoy_kernel
# ruff: noqa

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load_inline

try:
    native = load_inline(name="fused_tail", cpp_sources="#error no", functions=["fused_tail"], no_implicit_headers=True)
except Exception:
    native = None


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if native is not None:
            return native.fused_tail(x)
        return self.work(x)
