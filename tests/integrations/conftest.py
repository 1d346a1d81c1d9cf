"""One problem, three completions, and a scorer on this machine's CPU that all tests here share."""

from __future__ import annotations

import pytest

from cudal1_ray.integrations.rewards import CompletionScorer
from tests.measured_once import MEASURED_ONCE

PROBLEM = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Sum of the rows of a product with a diagonal matrix."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(size))

    def forward(self, x):
        return x @ torch.diag(self.scale)


def get_inputs():
    return [torch.rand(256, 512)]


def get_init_inputs():
    return [512]
'''
_HEAD = "import torch\nimport torch.nn as nn\n\n\n"
_CLASS = PROBLEM.split("\n\n\n")[1].replace("class Model(", "class ModelNew(")
FAST = _HEAD + _CLASS.replace("x @ torch.diag(self.scale)", "x * self.scale") + "\n"
WRONG = _HEAD + _CLASS.replace("x @ torch.diag(self.scale)", "x + self.scale") + "\n"
# Short measurements: what is tested here is the way of a verdict, not its precision.
SETTINGS = ["evaluation=cpu_train", "evaluation.timing.budget_s=0.1", "evaluation.slots=1", *MEASURED_ONCE]


def completion(code: str) -> str:
    """Return a policy's answer around a candidate."""
    return f"The product with a diagonal matrix is a scaling.\n\n```python\n{code}```\n"


@pytest.fixture(scope="session")
def scorer():
    with CompletionScorer(device="cpu", settings=SETTINGS) as scorer:
        yield scorer
