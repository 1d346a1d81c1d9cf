"""The code without what cannot change its behaviour, by which equal candidates are recognised."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable

from cudal1_ray.source.comments import strip_comments
from cudal1_ray.source.parsing import parse

_UNREADABLE = (SyntaxError, RecursionError)
_TRITON = "@triton"
_CUDA = re.compile(r"#include|__global__|__device__|torch::|at::|PYBIND11")
# A comment of C++ and CUDA.
NATIVE_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
# A literal of C++ (raw string, string, character; an apostrophe after a digit separates digits), or white space and
# comments outside literals.
_NATIVE_PART = re.compile(
    r'R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<!\d)\'(?:\\.|[^\'\\\n])+\''
    rf"|(?P<gap>(?:\s|{NATIVE_COMMENT.pattern})+)",
    re.S,
)


@functools.lru_cache(maxsize=4096)
def normalise_code(code: str) -> str:
    """Return the code without what cannot change its behaviour: comments, blank lines, docstrings, formatting.

    The text is parsed and printed again. Text that is not Python is returned stripped, so that the same
    broken candidate is still recognised. Comments inside string literals (inline CUDA) are part of the code
    and stay.
    """
    code = code.strip()  # before it is parsed, or what is only Python without its indentation would have two forms
    try:
        tree = parse(code)
        for node in ast.walk(tree):
            _drop_bare_strings(node)
        return ast.unparse(tree)
    except _UNREADABLE:
        return code


def _drop_bare_strings(node: ast.AST) -> None:
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if not isinstance(body, list) or not body:
            continue
        statements = [statement for statement in body if not _is_bare_string(statement)]
        if not statements and not isinstance(node, ast.Module) and field == "body":
            statements = [ast.Pass()]
        setattr(node, field, statements)


def _is_bare_string(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def bare_code(code: str) -> str:
    """Return the code without anything that cannot change what it does, inline CUDA and C++ included.

    `normalise_code` leaves string literals alone; here a comment inside a kernel's source must not make a
    known hack a new candidate.
    """
    normal = normalise_code(code)
    try:
        tree = parse(normal)
        for node, source in _native_sources(tree):
            node.value = normalise_code(source) if is_triton(source) else _replace_gaps(source, lambda _: " ").strip()
        return ast.unparse(tree)
    except _UNREADABLE:
        return normal


def without_native_comments(code: str) -> str:
    """Return the code without the comments of its inline CUDA, C++ and Triton, otherwise untouched.

    A literal with escapes is left alone.
    """
    try:
        for _, source in _native_sources(parse(code)):
            bare = strip_comments(source) if is_triton(source) else _replace_gaps(source, _without_comments)
            code = code.replace(source, bare)
    except _UNREADABLE:
        pass
    return code


def _native_sources(tree: ast.Module) -> list[tuple[ast.Constant, str]]:
    """Return (node, text) of the string literals that hold CUDA, C++ or Triton."""
    strings = ((n, n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return [(node, text) for node, text in strings if is_native(text)]


def is_native(text: str) -> bool:
    """Return whether a text is the source of CUDA, C++ or Triton, as far as its words show."""
    return _TRITON in text or _CUDA.search(text) is not None


def is_triton(source: str) -> bool:
    """Return whether a source is Python, where `//` divides; one that only mentions Triton in a comment is not."""
    if _TRITON not in source:
        return False
    try:
        parse(source)
    except _UNREADABLE:
        return _CUDA.search(source) is None  # a template, filled in before it is Python
    return True


def _replace_gaps(source: str, replace: Callable[[str], str]) -> str:
    """Return CUDA or C++ with white space and comments between other code replaced; literals stay as they are."""
    return _NATIVE_PART.sub(lambda part: replace(part["gap"]) if part["gap"] else part[0], source)


def _without_comments(gap: str) -> str:
    return NATIVE_COMMENT.sub(" ", gap)
