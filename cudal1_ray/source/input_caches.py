"""What a model keeps of the inputs of one call and gives back in another: values are followed by name, not by type.

Weights that are packed once and buffers of an input's shape are no such thing, so shapes, types, devices and fresh
memory carry nothing on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cudal1_ray.source.candidate import CandidateReading
from cudal1_ray.source.nodes import ALLOCATORS, METADATA, METADATA_CALLS, assignments, last_name, self_attribute

# Calls whose result does not depend on the numbers in what they are given.
_INDEPENDENT = METADATA_CALLS | ALLOCATORS | {"type", "ones", "ones_like", "new_ones", "rand_like", "randn_like"}
# Methods that take a form, but no numbers, from what they are given.
_ONLY_LIKE = frozenset({"to", "type_as", "view_as", "expand_as", "reshape_as"})
_STORES = frozenset({"append", "appendleft", "add", "put", "insert", "extend", "update", "setdefault", "copy_"})


def input_cache(reading: CandidateReading) -> str:
    """Return the attribute of self that some calls fill from their inputs and that calls return; empty without one."""
    for method in (candidate for candidate in reading.call_time if candidate.name in ("forward", "__call__")):
        arguments = {argument.arg for argument in method.args.args} - {"self"}
        derived = _derived(method, arguments, set())
        stored = {name for name, value in _stored_sometimes(method) if _depends(value, derived, set())}
        for name in sorted(stored):
            recalled = _derived(method, set(), {name})
            values = (node.value for node in ast.walk(method) if isinstance(node, ast.Return) and node.value)
            if any(_depends(value, recalled, {name}) for value in values):
                return name
    return ""


def _derived(method: ast.FunctionDef, names: set[str], attributes: set[str]) -> set[str]:
    """Return the local names whose values depend on these names or attributes of self, in any order of the lines."""
    derived, before = set(names), -1
    while len(derived) > before:
        before = len(derived)
        for node in ast.walk(method):
            for target, value in assignments(node):
                part = isinstance(node, ast.Assign) and isinstance(target, (ast.Attribute, ast.Subscript))
                if not part and _depends(value, derived, attributes):
                    derived |= {name.id for name in ast.walk(target) if isinstance(name, ast.Name)} - {"self"}
    return derived


def _depends(node: ast.AST, names: set[str], attributes: set[str]) -> bool:
    """Return whether the numbers in an expression's value depend on these names or attributes of self."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        if node.attr in METADATA:
            return False
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return node.attr in attributes
    if isinstance(node, ast.Call):
        called = last_name(node.func)
        if called in _INDEPENDENT:
            return False
        if called in _ONLY_LIKE:
            return _depends(node.func, names, attributes)
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and called in attributes:
            if node.func.value.id == "self":  # what was kept is a function, a traced one for example
                return any(_depends(argument, names, attributes) for argument in node.args)
    return any(_depends(inner, names, attributes) for inner in ast.iter_child_nodes(node))


def _stored_sometimes(method: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield (attribute of self, what is stored in it) of the lines that not every call reaches."""
    branches = [node for node in ast.walk(method) if isinstance(node, (ast.If, ast.Try, ast.While))]
    guarded = {id(inner) for branch in branches for inner in ast.walk(branch)}
    returning = (b for b in branches if any(isinstance(inner, ast.Return) for inner in ast.walk(b)))
    leaves = [branch.end_lineno or branch.lineno for branch in returning]
    for node in ast.walk(method):
        if not (id(node) in guarded or any(getattr(node, "lineno", 0) > line for line in leaves)):
            continue
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple):
                    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(target.elts)
                    pairs = list(zip(target.elts, values, strict=False))
                yield from ((name, value) for part, value in pairs if (name := self_attribute(part)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STORES:
            if name := self_attribute(node.func):
                yield from ((name, value) for value in [*node.args, *(keyword.value for keyword in node.keywords)])
