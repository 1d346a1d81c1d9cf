"""The module-level constants of a problem that are only sizes of its inputs, and how their values are rewritten."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Mapping
from dataclasses import dataclass

from cudal1_ray.source.parsing import PROBLEM, parse
from cudal1_ray.source.text import line_starts


@dataclass(frozen=True)
class Constant:
    """One assignment of an integer, e.g. `batch_size = 128 * 4` or `height = width = 224`, or one element of a tuple.

    Attributes:
        name: its first target; for the first element of `input_shape = (32768, 3)`, `input_shape[0]`.
        value: what the assignment evaluates to.
        span: start and end of the value's text, in bytes of the source's UTF-8 form.
    """

    name: str
    value: int
    span: tuple[int, int]


@dataclass(frozen=True)
class _Assignment:
    targets: tuple[str, ...]
    value: ast.expr


def size_constants(source: str) -> dict[str, Constant]:
    """Return name -> constant, of integers that `get_inputs` uses and nothing else of the file does.

    A constant that a class, `get_init_inputs` or another function uses, directly or through another constant, is a
    hyper-parameter of the model and left out. So is one that is assigned twice.
    """
    tree = parse(source, PROBLEM)
    assigned: dict[str, list[_Assignment]] = {}
    other: set[str] = set()
    for node in tree.body:
        pairs = _assignments(node)
        for pair in pairs:
            for target in pair.targets:
                assigned.setdefault(target, []).append(pair)
        if not pairs and not isinstance(node, ast.ClassDef | ast.FunctionDef):
            other |= _names(node)
    used: set[str] = set()
    for scope in symtable.symtable(source, PROBLEM, "exec").get_children():
        values = _globals_of(scope)
        if scope.get_name() == "get_inputs":
            used |= values
        else:
            other |= values
    forbidden = _closure(other, assigned)
    starts = line_starts(source.encode())
    constants = {}
    for name in sorted(_closure(used, assigned) - forbidden):
        pairs = assigned.get(name, [])
        if len(pairs) != 1 or pairs[0].targets[0] != name or forbidden & set(pairs[0].targets):
            continue
        value_node = pairs[0].value
        parts = {name: value_node}
        if isinstance(value_node, ast.Tuple):
            parts = {f"{name}[{index}]": element for index, element in enumerate(value_node.elts)}
        for key, part in parts.items():
            value = _integer(part)
            if value is not None and value > 1:
                last_line, last_column = part.end_lineno or 0, part.end_col_offset or 0  # of a parsed node never None
                span = (starts[part.lineno - 1] + part.col_offset, starts[last_line - 1] + last_column)
                constants[key] = Constant(key, value, span)
    return constants


def rewrite(source: str, values: Mapping[str, int]) -> str:
    """Return the source with these constants' values replaced and every other byte as it was.

    Raises:
        KeyError: when a name is not among `size_constants(source)`.
    """
    constants = size_constants(source)
    text = source.encode()
    for constant in sorted((constants[name] for name in values), key=lambda c: -c.span[0]):
        start, end = constant.span
        text = text[:start] + str(values[constant.name]).encode() + text[end:]
    return text.decode()


def _assignments(node: ast.stmt) -> list[_Assignment]:
    """Return what a statement assigns to plain names, `a, b = 1, 2` as two assignments; empty for other statements."""
    if not isinstance(node, ast.Assign):
        return []
    names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    if len(names) == len(node.targets):
        return [_Assignment(tuple(names), node.value)]
    target, value = node.targets[0], node.value
    if len(node.targets) > 1 or not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return []
    names = [element.id for element in target.elts if isinstance(element, ast.Name)]
    if not len(names) == len(target.elts) == len(value.elts):
        return []
    return [_Assignment((name,), part) for name, part in zip(names, value.elts, strict=True)]


def _globals_of(scope: symtable.SymbolTable) -> set[str]:
    """Return the module's names that a function or class uses, also in what is defined inside it."""
    names = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
    return names.union(*(_globals_of(child) for child in scope.get_children()))


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _closure(names: set[str], assigned: Mapping[str, list[_Assignment]]) -> set[str]:
    """Return these names and all those that their assignments use."""
    visited, left = set(), list(names)
    while left:
        name = left.pop()
        if name not in visited:
            visited.add(name)
            left += [used for pair in assigned.get(name, []) for used in _names(pair.value)]
    return visited


def _integer(node: ast.expr) -> int | None:
    """Return the value of an integer literal, or of a product of some; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _integer(node.left), _integer(node.right)
        return None if left is None or right is None else left * right
    return None
