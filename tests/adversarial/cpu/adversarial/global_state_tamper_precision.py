"""Matrix products are allowed to be bfloat16."""
# problem: chain
# expect: uncredited
# reasons: global_state_tamper, precision_downgrade
# ruff: noqa

import torch
import torch.nn as nn

torch.set_float32_matmul_precision("medium")
torch.backends.cuda.matmul.allow_tf32 = True


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
