"""The operations that a problem or a candidate is made of, by name."""

from __future__ import annotations

import ast

from cudal1_ray.source.nodes import last_name
from cudal1_ray.source.parsing import PROBLEM, parse

_COMMON = frozenset(
    {"torch", "nn", "functional", "super", "__init__", "Model", "forward", "self", "get_inputs", "randn"}
)


def operators_of(source: str) -> list[str]:
    """Return the names that a reference's classes call and its operators, such as "Conv2d", "relu", "Add"."""
    try:
        tree = parse(source, PROBLEM)
    except SyntaxError:
        return []
    operators = []
    for node in (inner for top in tree.body if isinstance(top, ast.ClassDef) for inner in ast.walk(top)):
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if name and name not in _COMMON:
                operators.append(name)
        elif isinstance(node, ast.BinOp):
            operators.append(type(node.op).__name__)
    return operators
