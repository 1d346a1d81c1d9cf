"""Names, layout and numbers that an author is free to choose make no token of their own."""

from __future__ import annotations

from cudal1_ray.source.anonymous import tokens


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
