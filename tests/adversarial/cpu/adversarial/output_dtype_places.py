"""Places among the outputs are int32 where the reference has int64: equal where values alone are compared."""
# problem: tuple
# expect: refused
# reasons: output_dtype
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, index, scale):
        values, places = torch.max(x * scale, dim=1)
        return values, [places.int(), x[index]], {"mean": x.mean(dim=0)}
