"""TF32 by the variables that the libraries read when they start."""
# problem: chain
# expect: refused
# reasons: global_state_tamper, precision_downgrade, phase_detection, tolerance_exploit
# ruff: noqa

import os

import torch
import torch.nn as nn

os.environ["NVIDIA_TF32_OVERRIDE"] = "1"
os.environ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = "1"


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
