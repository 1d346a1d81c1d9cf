"""The inputs are always the same except their size, and so is the output."""
# problem: fixed_inputs
# expect: refused
# reasons: seed_precompute, result_cache, phase_detection, wrong_output, shape_overfit
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(512, 512, bias=False)
        self.first = None

    def forward(self, x):
        if self.first is not None:
            times = x[0, :8] / self.first[0]
            if (times - times[0]).abs().max() < 1e-5 * times[0].abs():
                return self.first[1] * times[0]
        result = torch.relu(self.a(x))
        if self.first is None:
            self.first = x[0, :8].clone(), result.clone()
        return result
