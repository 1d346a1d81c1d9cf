"""A CUDA graph per shape: inputs are copied in, the output is copied out."""
# problem: chain
# expect: accepted
# ruff: noqa

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.graphs = {}

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def capture(self, x):
        given, side = x.clone(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.work(given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = self.work(given)
        return graph, given, found

    def forward(self, x):
        key = tuple(x.shape)
        if key not in self.graphs:
            self.graphs[key] = self.capture(x)
        graph, given, found = self.graphs[key]
        given.copy_(x)
        graph.replay()
        return found.clone()
