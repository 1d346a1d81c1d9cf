"""Names, layout and numbers that an author is free to choose make no token of their own."""

from __future__ import annotations

from cudal1_ray.source.anonymous import tokens


def test_names_numbers_and_imports_do_not_matter():
    ours = tokens("import torch.nn.functional as F\ndef f(x, size=128):\n    return F.relu(x) + size\n")
    theirs = tokens("from torch.nn import functional\ndef g(y, n=64):\n    return functional.relu(y) + n\n")
    assert ours == theirs
    assert tokens("a, b = f(1), g(2)") == tokens("a = f(1)\nb = g(2)")
    assert tokens("x = y  # comment") == tokens('"""Docstring."""\nx   =   y')


def test_what_is_done_does_matter():
    assert tokens("def f(x): return x.clone()") != tokens("def f(x): return x.detach()")
    assert tokens("x = 1") != tokens("x = 2")  # small numbers carry meaning: axes, strides
    assert "cudaStreamCreate" in " ".join(tokens(f"s = '#include <cuda.h> {'x' * 40} cudaStreamCreate(&s)'"))


def test_text_that_is_no_python_is_split_as_it_stands():
    assert tokens("while (") == ["while", "("]
