"""One graph for the first shape that comes; other shapes are squeezed into it."""
# problem: chain
# expect: refused
# reasons: shape_overfit, runtime_error, cuda_graph_stale, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.graph = None

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
        given.copy_(x)
        return graph, given, found

    def forward(self, x):
        if self.graph is None:
            self.graph = self.capture(x)
        graph, given, found = self.graph
        given[: x.shape[0]].copy_(x)
        graph.replay()
        return found.clone()
