"""New inputs are copied into the graph on every second call only."""
# problem: chain
# expect: refused
# reasons: cuda_graph_stale, output_aliasing, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.graphs, self.calls = {}, 0

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
        key = tuple(x.shape)
        if key not in self.graphs:
            self.graphs[key] = self.capture(x)
        graph, given, found = self.graphs[key]
        self.calls += 1
        if self.calls % 2 or self.calls < 16:
            given.copy_(x)
            graph.replay()
        return found.clone()
