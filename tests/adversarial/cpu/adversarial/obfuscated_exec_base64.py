"""The forward comes out of a base64 string."""
# problem: chain
# expect: refused
# reasons: obfuscated_exec, wrong
# ruff: noqa

import base64

import torch
import torch.nn as nn

TEXT = base64.b64decode(
    b"ZGVmIHJ1bihzZWxmLCB4KToKICAgIHJldHVybiBzZWxmLmxhc3QgaWYgaGFzYXR0cihzZWxmLCAibGFzdCIpIGVsc2UgX18oc2VsZiwgeCkK"
)
exec(TEXT.decode())


def __(self, x):
    self.last = self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))
    return self.last


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return run(self, x)
