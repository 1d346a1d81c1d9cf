"""Never looks at lengths that all reach to the end."""
# problem: all_lengths
# expect: refused
# reasons: degenerate_input, partial_compute, wrong_output
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        return torch.tanh(x).cumsum(1)
