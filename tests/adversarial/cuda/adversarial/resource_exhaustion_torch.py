"""95% of the device's memory through torch."""
# problem: chain
# expect: refused
# reasons: resource_exhaustion, memory_limit, runtime_error, baseline_sabotage
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.held = None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        if self.held is None:
            free, total = torch.cuda.mem_get_info()
            self.held = torch.empty(total // 20 * 19, dtype=torch.uint8, device=x.device)
        return self.work(x)
