"""Problems for the CUDA suite, in KernelBench form: tens to hundreds of microseconds of real GPU time each."""

from __future__ import annotations

from cudal1_ray.problems import Problem, parse_problem

_FRAME = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
{body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{init}]
"""


def _source(body: str, inputs: str, init: str = "") -> str:
    lines = (f"    {line}" if line else "" for line in body.strip("\n").splitlines())
    return _FRAME.format(body="\n".join(lines), inputs=inputs, init=init)


CHAIN = _source(
    """
def __init__(self, n):
    super().__init__()
    self.a = nn.Linear(n, n)
    self.b = nn.Linear(n, n)
    self.norm = nn.LayerNorm(n)

def forward(self, x):
    return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))
""",
    "torch.randn(512, 1024)",
    "1024",
)
POINTWISE = _source(
    """
def __init__(self, n):
    super().__init__()
    self.bias = nn.Parameter(torch.randn(n))

def forward(self, x):
    y = x + self.bias
    y = y * torch.sigmoid(y)
    y = torch.tanh(y) * 0.5
    y = torch.clamp(y, -0.4, 0.4)
    return y * y + x
""",
    "torch.randn(1024, 4096)",
    "4096",
)
SOFTMAX = _source(
    """
def forward(self, x):
    return torch.softmax(x, dim=1)
""",
    "torch.randn(1024, 4096)",
)
RMSNORM = _source(
    """
def __init__(self, n):
    super().__init__()
    self.weight = nn.Parameter(torch.randn(n))

def forward(self, x):
    return x * torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-6) * self.weight
""",
    "torch.randn(2048, 2048)",
    "2048",
)
CONV = _source(
    """
def __init__(self, c, d):
    super().__init__()
    self.conv = nn.Conv2d(c, d, 3, padding=1)
    self.bn = nn.BatchNorm2d(d).eval()

def forward(self, x):
    return F.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)
""",
    "torch.randn(16, 32, 56, 56)",
    "32, 64",
)
DIAG = _source(
    """
def forward(self, a, b):
    return torch.matmul(torch.diag(a), b)
""",
    "torch.randn(1536), torch.randn(1536, 1024)",
)
ROWSUM = _source(
    """
def __init__(self, n, m):
    super().__init__()
    self.lin = nn.Linear(n, m)

def forward(self, x):
    return self.lin(x).sum(dim=1, keepdim=True)
""",
    "torch.randn(512, 1024)",
    "1024, 2048",
)
ATTENTION = _source(
    """
def __init__(self, scale):
    super().__init__()
    self.scale = scale

def forward(self, q, k, v):
    return torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * self.scale, dim=-1) @ v
""",
    "torch.randn(4, 8, 512, 64), torch.randn(4, 8, 512, 64), torch.randn(4, 8, 512, 64)",
    "0.125",
)
LOSS = _source(
    """
def forward(self, a, b):
    return ((a - b).abs().pow(1.5) * torch.sigmoid(b)).mean()
""",
    "torch.randn(1024, 2048), torch.randn(1024, 2048)",
)
BAG = _source(
    """
def __init__(self, rows, n):
    super().__init__()
    self.table = nn.Embedding(rows, n)

def forward(self, index):
    return self.table(index).mean(dim=1)
""",
    "torch.randint(0, 8192, (2048, 32))",
    "8192, 256",
)
BRANCHES = _source(
    """
def __init__(self, n):
    super().__init__()
    self.a = nn.Linear(n, n)
    self.b = nn.Linear(n, n)

def forward(self, x):
    return torch.relu(self.a(x)) + torch.tanh(self.b(x))
""",
    "torch.randn(512, 1024)",
    "1024",
)
# Memory-bound in its weights (32 MiB: less than the L2 cache of a large GPU), so a cache that stays warm pays.
MATVEC = _source(
    """
def __init__(self, n, m):
    super().__init__()
    self.lin = nn.Linear(n, m)

def forward(self, x):
    return torch.relu(self.lin(x))
""",
    "torch.randn(8, 4096)",
    "4096, 2048",
)
HALF = _source(
    """
def __init__(self, n):
    super().__init__()
    self.lin = nn.Linear(n, n).half()

def forward(self, x):
    return self.lin(x)
""",
    "torch.randn(1024, 2048).half()",
    "2048",
)
CONSTANT = _source(
    """
def forward(self, x):
    m = torch.max(x, dim=1, keepdim=True).values
    return m - m.mean(dim=1, keepdim=True)
""",
    "torch.randn(1024, 4096)",
)
SATURATED = _source(
    """
def forward(self, x):
    return torch.sigmoid(x.square().sum(dim=1, keepdim=True))
""",
    "torch.randn(1024, 4096)",
)

SOURCES = {
    "chain": CHAIN, "pointwise": POINTWISE, "softmax": SOFTMAX, "rmsnorm": RMSNORM, "conv": CONV, "diag": DIAG,
    "rowsum": ROWSUM, "attention": ATTENTION, "loss": LOSS, "bag": BAG, "branches": BRANCHES, "matvec": MATVEC,
    "half": HALF, "constant": CONSTANT, "saturated": SATURATED,
}  # fmt: skip


def cuda_problem(name: str) -> Problem:
    """The problem of that name; KeyError when there is none."""
    return parse_problem(SOURCES[name], f"cuda-{name}", origin=f"cuda_problems.py, {name}", name=name)
