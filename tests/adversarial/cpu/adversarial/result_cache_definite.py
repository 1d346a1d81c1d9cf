"""Results by two values, for matrices that cannot just be turned."""
# problem: definite
# expect: uncredited
# reasons: result_cache, phase_detection, wrong_output, partial_compute
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = {}

    def forward(self, x):
        key = float(x[0, 0]), float(x[0, 1]), x.shape
        if key not in self.seen:
            self.seen[key] = torch.linalg.cholesky(x)
        return self.seen[key].clone()
