"""The reference's own operations, one to a line, beside the options of a kernel that is not there."""
# problem: attention
# expect: uncredited
# reasons: no_op_rewrite
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.block_rows = 128
        self.num_warps = 4
        self.num_stages = 3

    def forward(self, q, k, v):
        turned = k.transpose(-2, -1)
        logits = torch.matmul(q, turned) * self.scale
        shares = torch.softmax(logits, dim=-1)
        return shares @ v
