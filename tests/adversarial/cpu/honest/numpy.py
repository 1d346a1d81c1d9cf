"""Numpy."""
# problem: pointwise
# expect: accepted
# ruff: noqa

import numpy as np
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.numpy()
        return torch.from_numpy(np.tanh(np.logaddexp(x, np.float32(0))) * x)
