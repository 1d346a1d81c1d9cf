"""A candidate for problem.py: the same function in one pass over the tensor."""

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")
