"""Half-precision accumulation, inside forward only."""
# problem: half
# expect: refused
# reasons: global_state_tamper, precision_downgrade, phase_detection, tolerance_exploit, wrong_output
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(n, n).half()

    def forward(self, x):
        held = torch.backends.cuda.matmul
        held.allow_fp16_accumulation = True
        out = self.lin(x)
        held.allow_fp16_accumulation = False
        return out
