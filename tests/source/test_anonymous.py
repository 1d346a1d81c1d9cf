"""Names, layout and numbers that an author is free to choose make no token of their own."""

from __future__ import annotations

import re

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


KERNEL = '''import torch
import triton
import triton.language as tl
from torch.utils.cpp_extension import load_inline

SOURCE = """#include <torch/extension.h>
torch::Tensor copy(torch::Tensor x) { auto out = x.clone(); return out; }"""
calls = 0


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


class ModelNew(torch.nn.Module):
    width = 128
    height = 64

    def scaled(self, x, scale):
        return x * scale

    def forward(self, x):
        global calls
        calls += 1
        mean = x.mean(dim=0, keepdim=True)
        out = torch.empty_like(x)
        try:
            double[(1,)](x, out, x.numel(), BLOCK=self.width, num_warps=4)
        except RuntimeError as error:
            import warnings as log
            log.warn(f"{error} {mean}")
        loss = torch.nn.functional.mse_loss(out, mean, reduction="mean")
        return self.scaled(out, scale=loss) / self.height
'''


@pytest.mark.parametrize(
    "name", ["BLOCK", "double", "at", "out", "mean", "calls", "error", "log", "scaled", "scale", "loss"]
)
def test_codes_when_a_name_is_another_outside_strings_are_the_same(name):
    native, python = KERNEL.split('"""\n')
    other = f'{native}"""\n' + re.sub(rf'(?<!x\.)(?<!")\b{name}\b', "other", python)
    assert other != KERNEL
    assert same_except_names(KERNEL, other) and same_except_names(other, KERNEL)


def test_codes_when_an_import_has_another_name_are_the_same():
    other = KERNEL.replace("as tl", "as language").replace("tl.", "language.")
    assert same_except_names(KERNEL, other.replace("import triton\n", "import triton as t\n").replace("@triton", "@t"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out, mean, reduction", "out, calls, reduction"),
        ('reduction="mean"', 'reduction="sum"'),
        ("x.mean(", "x.sum("),
        ("auto out = x.clone(); return out;", "auto y = x.clone(); return y;"),
        ("num_warps", "num_stages"),
        ("BLOCK=self.width", "n=self.width"),
        ("self.width", "self.height"),
        ("width = 128\n    height = 64", "height = 128\n    width = 64"),
        ("tl.constexpr", "int"),
        ("import triton.language as tl", "import other.language as tl"),
        ("import warnings as log", "import logging as log"),
        ("RuntimeError", "ValueError"),
    ],
)
def test_codes_when_more_than_a_name_is_another_differ(old, new):
    other = KERNEL.replace(old, new)
    assert other != KERNEL
    assert not same_except_names(KERNEL, other) and not same_except_names(other, KERNEL)


def test_codes_when_a_name_and_an_equal_string_are_others_differ():
    code = "def f(x, mean, sum): return mse_loss(x, {0}, reduction='{0}')"
    assert not same_except_names(code.format("mean"), code.format("sum"))
    assert same_except_names(code.replace("{0}", "mean", 1), code.replace("mean", "m").replace("{0}", "m", 1))


def test_codes_when_a_function_has_another_name_for_its_arguments_are_the_same_only_if_its_calls_follow():
    code = "def f(a, b): return a - b\ng = f\ny = {}(a=1, b=2)"
    swapped = "def f(b, a): return b - a\ng = f\ny = {}(a=1, b=2)"
    assert not same_except_names(code.format("f"), swapped.format("f"))
    assert not same_except_names(code.format("g"), swapped.format("g"))
    assert same_except_names(code.format("f"), swapped.format("f").replace("a=1, b=2", "b=1, a=2"))


def test_codes_when_imports_are_unused_or_in_another_order_are_the_same():
    lines = KERNEL.split("\n")
    assert same_except_names(KERNEL, "\n".join([lines[2], lines[0], lines[1], *lines[3:]]))
    assert same_except_names(KERNEL, "\n".join(["import math", "import torch.nn as nn", *lines]))
    assert same_except_names(KERNEL, KERNEL.replace(f"{lines[3]}\n", ""))
    assert not same_except_names(f"import math\n{KERNEL}", f"import math\n{KERNEL}".replace("* 2", "* math.e"))
    assert not same_except_names("import f\nf = 1", "import g as f\nf = 1")
    fallback = "import {} as f\ntry:\n    import h as f\nexcept ImportError:\n    pass\nf.run()"
    assert not same_except_names(fallback.format("a"), fallback.format("b"))
