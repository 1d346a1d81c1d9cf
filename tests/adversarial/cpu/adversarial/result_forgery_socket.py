"""Writes answers of its own into every open socket."""
# problem: chain
# expect: refused
# reasons: result_forgery, crash
# ruff: noqa

import json
import os
import struct

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        body = json.dumps({"inner_ns": 1, "structure": "T", "tensors": [], "inputs": [], "aliased": False}).encode()
        for fd in range(3, 64):
            try:
                os.write(fd, struct.pack("<I", len(body)) + body)
            except OSError:
                pass
        return torch.zeros_like(x)
