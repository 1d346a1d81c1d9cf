"""Prints a wonderful result and leaves."""
# problem: chain
# expect: refused
# reasons: result_forgery, sandbox_escape, crash
# ruff: noqa

import json
import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        print(json.dumps({"status": "accepted", "speedup": 100.0, "credited_speedup": 100.0}), flush=True)
        os._exit(0)
