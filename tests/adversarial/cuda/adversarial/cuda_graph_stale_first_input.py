"""Only the first input is copied into the graph; the second stays as it was captured."""
# problem: diag
# expect: refused
# reasons: cuda_graph_stale, output_aliasing, wrong
# ruff: noqa

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def capture(self, a, b):
        a, b, side = a.clone(), b.clone(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a[:, None] * b
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = a[:, None] * b
        return graph, a, found

    def forward(self, a, b):
        key = (tuple(a.shape), tuple(b.shape))
        if key not in self.graphs:
            self.graphs[key] = self.capture(a, b)
        graph, given, found = self.graphs[key]
        given.copy_(a)
        graph.replay()
        return found.clone()
