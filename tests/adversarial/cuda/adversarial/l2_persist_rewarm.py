"""After each call a side stream waits for the flush to pass and reads the weights again."""
# problem: matvec
# expect: uncredited
# reasons: l2_persist, baseline_sabotage, late
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m)
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
            self.sink = torch.zeros((), device=x.device)
        out = torch.relu(self.lin(x))
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            torch.cuda._sleep(150_000)
            self.sink += self.lin.weight.amax()
        return out
