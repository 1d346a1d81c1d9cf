"""Names, layout and numbers that an author is free to choose make no token of their own."""

from __future__ import annotations

import pytest

from cudal1_ray.source.anonymous import same_except_names, tokens


def test_tokens_when_names_numbers_or_imports_differ_are_the_same():
    ours = tokens("import torch.nn.functional as F\ndef f(x, size=128):\n    return F.relu(x) + size\n")
    theirs = tokens("from torch.nn import functional\ndef g(y, n=64):\n    return functional.relu(y) + n\n")
    assert ours == theirs
    assert tokens("a, b = f(1), g(2)") == tokens("a = f(1)\nb = g(2)")
    assert tokens("x = y  # comment") == tokens('"""Docstring."""\nx   =   y')


def test_tokens_when_code_does_something_else_differ():
    assert tokens("def f(x): return x.clone()") != tokens("def f(x): return x.detach()")
    assert tokens("x = 1") != tokens("x = 2")  # small numbers carry meaning: axes, strides
    assert "cudaStreamCreate" in " ".join(tokens(f"s = '#include <cuda.h> {'x' * 40} cudaStreamCreate(&s)'"))


def test_tokens_when_text_is_not_python_are_its_words():
    assert tokens("while (") == ["while", "("]


CODE = """import torch
import torch.nn.functional as F


class ModelNew(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.act = torch.nn.GELU(approximate="tanh")
        self.size = size

    def forward(self, x, y):
        z = F.relu(self.act(x) - y, inplace=True)
        return z.sum(dim=1) * 3
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("z", "out", True),
        ("F", "fn", True),
        ("act", "activation", True),
        ("x, y):", "x, y):  # fused", True),
        ("self.act(x) - y", "self.act(y) - x", False),
        ("x, y", "y, x", False),
        ("relu", "gelu", False),
        ("tanh", "none", False),
        ("* 3", "* 4", False),
        ("inplace", "training", False),
        ("        self.size = size\n", "", False),
        (CODE, "", False),
        (CODE, "while (", False),
    ],
)
def test_codes_when_one_has_other_names_are_the_same_and_no_other_difference_is_overlooked(old, new, same):
    other = CODE.replace(old, new)
    assert other != CODE
    assert same_except_names(CODE, other) is same_except_names(other, CODE) is same
    assert same_except_names(CODE, CODE) and same_except_names(other, other)


def test_codes_when_a_name_takes_the_place_of_two_are_not_the_same():
    assert not same_except_names("def f(a, b): return a - b", "def f(a, a_): return a - a")
    assert not same_except_names("def f(a, b): return a - b", "def f(b, a): return a - b")
    assert same_except_names("def f(a, b): return a - b", "def g(b, a): return b - a")
    assert not same_except_names("from torch import relu\ny = relu(x)", "from torch import tanh\ny = tanh(x)")
