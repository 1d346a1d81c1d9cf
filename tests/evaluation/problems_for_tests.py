"""Small problems that the evaluator's tests share: each costs a fraction of a millisecond to a few milliseconds."""

from __future__ import annotations

from unusual_problems import UNUSUAL

from cudal1_ray.problems import Problem

CHAIN = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Linear(n, n)
        self.b = nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))


def get_inputs():
    return [torch.randn(192, 320)]


def get_init_inputs():
    return [320]
"""

SOFTMAX = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(64, 4096)]


def get_init_inputs():
    return []
"""

CONSTANT = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        m = torch.max(x, dim=1, keepdim=True).values
        return m - m.mean(dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""

BATCHNORM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv = nn.Conv1d(n, n, 3)
        self.bn = nn.BatchNorm1d(n).eval()

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


def get_inputs():
    return [torch.randn(16, 32, 128)]


def get_init_inputs():
    return [32]
"""

DROPOUT = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return torch.tanh(self.drop(x))


def get_inputs():
    return [torch.randn(64, 1024)]


def get_init_inputs():
    return [0.5]
"""

TUPLE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, index, scale):
        values, places = torch.max(x * scale, dim=1)
        return values, [places, x[index]], {"mean": x.mean(dim=0)}


def get_inputs():
    return [torch.randn(128, 512), torch.randint(0, 128, (32,)), 1.5]


def get_init_inputs():
    return []
"""

_HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
"""

POINTWISE = (
    _HEAD
    + """
    def forward(self, x):
        return torch.tanh(F.softplus(x)) * x


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return []
"""
)

WHOLE_SUM = POINTWISE.replace("F.softplus(x)) * x", "F.softplus(x)).sum()")

FIXED_INPUTS = (
    _HEAD
    + """
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(512, 512, bias=False)

    def forward(self, x):
        return torch.relu(self.a(x))


def get_inputs():
    torch.manual_seed(3)
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []
"""
)

DEFINITE = (
    _HEAD
    + """
    def forward(self, x):
        return torch.linalg.cholesky(x)


def get_inputs():
    a = torch.randn(96, 96)
    return [a @ a.t() + 96 * torch.eye(96)]


def get_init_inputs():
    return []
"""
)

LAID_OUT = (
    _HEAD
    + """
    def forward(self, x):
        return torch.softmax(torch.tanh(x), dim=1)


def get_inputs():
    return [torch.randn(1024, 128).t()]


def get_init_inputs():
    return []
"""
)

NEVER_NEGATIVE = (
    _HEAD
    + """
    def forward(self, x):
        return torch.relu(x) * 2 + torch.abs(x)


def get_inputs():
    return [torch.rand(256, 1024)]


def get_init_inputs():
    return []
"""
)

SMALL = CHAIN.replace("192, 320", "24, 160").replace("[320]", "[160]")

ATTENTION = (
    _HEAD
    + """
    def __init__(self, n):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(n, n), nn.Linear(n, n), nn.Linear(n, n)

    def forward(self, x):
        weights = torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) / x.shape[-1] ** 0.5, -1)
        return (weights @ self.v(x)).transpose(1, 2)


def get_inputs():
    return [torch.randn(4, 64, 64)]


def get_init_inputs():
    return [64]
"""
)

ROW_MAX = (
    _HEAD
    + """
    def forward(self, x):
        return torch.max(x, dim=1).values


def get_inputs():
    return [torch.randn(512, 4096)]


def get_init_inputs():
    return []
"""
)

LARGE_RELU = (
    _HEAD
    + """
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(2048, 2048)]


def get_init_inputs():
    return []
"""
)

EMBEDDED = (
    _HEAD
    + """
    def __init__(self, count, n):
        super().__init__()
        self.table = nn.Embedding(count, n)
        self.a, self.b = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)

    def forward(self, numbers):
        return self.b(F.gelu(self.a(self.table(numbers))))


def get_inputs():
    return [torch.randint(0, 5000, (16, 64))]


def get_init_inputs():
    return [5000, 96]
"""
)

UNIT_MIX = (
    _HEAD
    + """
    def __init__(self, n):
        super().__init__()
        self.mix = nn.Linear(n, n, bias=False)
        nn.init.eye_(self.mix.weight)

    def forward(self, x):
        return F.gelu(self.mix(x))


def get_inputs():
    return [torch.randn(256, 384)]


def get_init_inputs():
    return [384]
"""
)

DEEP = (
    _HEAD
    + """
    def __init__(self, n, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n, n) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def get_inputs():
    return [torch.rand(64, 128)]


def get_init_inputs():
    return [128, 16]
"""
)

PACKED = (
    _HEAD
    + """
    def __init__(self, n):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(3):
            self.layers.append(nn.Linear(n, n))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256]
"""
)

WIDE = (
    _HEAD
    + """
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(384, 768)]


def get_init_inputs():
    return [768]
"""
)

_SOURCES = {
    "chain": CHAIN, "softmax": SOFTMAX, "constant": CONSTANT, "batchnorm": BATCHNORM, "dropout": DROPOUT,
    "tuple": TUPLE, "pointwise": POINTWISE, "whole_sum": WHOLE_SUM, "fixed_inputs": FIXED_INPUTS,
    "definite": DEFINITE, "laid_out": LAID_OUT, "never_negative": NEVER_NEGATIVE, "small": SMALL,
    "attention": ATTENTION, "row_max": ROW_MAX, "large_relu": LARGE_RELU, "embedded": EMBEDDED, "unit_mix": UNIT_MIX,
    "deep": DEEP, "packed": PACKED, "wide": WIDE, **UNUSUAL,
}  # fmt: skip


def problem(name: str) -> Problem:
    return Problem(problem_id=f"test/{name}", source=_SOURCES[name], name=name)


def renamed(name: str) -> str:
    """The reference of a problem as a candidate."""
    return _SOURCES[name].replace("class Model(", "class ModelNew(")
