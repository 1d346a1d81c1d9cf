"""A thread finishes three eighths of the rows without being joined: it ends before its rows are read."""
# problem: wide
# expect: uncredited
# most: 1.08
# reasons: late, wrong
# ruff: noqa

import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)

    def rows(self, out, x, part):
        with torch.no_grad():
            out[part] = nn.functional.gelu(self.linear(x[part]))

    def forward(self, x):
        out, here = torch.empty_like(x), len(x) * 5 // 8
        threading.Thread(target=self.rows, args=(out, x, slice(here, None))).start()
        self.rows(out, x, slice(here))
        return out
