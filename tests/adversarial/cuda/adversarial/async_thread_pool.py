"""A Python thread that lives on fills the output after the call has returned."""
# problem: chain
# expect: refused
# reasons: late, wrong, timeout, sandbox_escape
# ruff: noqa

import queue
import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.jobs, self.worker = queue.SimpleQueue(), None

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    @torch.no_grad()
    def run(self):
        while True:
            x, out = self.jobs.get()
            out.copy_(self.work(x))

    def forward(self, x):
        out = torch.empty_like(x)
        self.jobs.put((x, out))
        if self.worker is None:
            self.worker = threading.Thread(target=self.run, daemon=True)
            self.worker.start()
        return out
