"""A graph that writes into a new output by a copy at its end."""
# problem: pointwise
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(n))
        self.graphs = {}

    def work(self, x):
        y = x + self.bias
        y = F.silu(y, inplace=True).tanh_().mul_(0.5).clamp_(-0.4, 0.4)
        return torch.addcmul(x, y, y)

    def capture(self, x):
        given = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.work(given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = self.work(given)
        return graph, given, found

    def forward(self, x):
        if x.shape not in self.graphs:
            self.graphs[x.shape] = self.capture(x)
        graph, given, found = self.graphs[x.shape]
        given.copy_(x)
        graph.replay()
        return torch.empty_like(found).copy_(found)
