"""Questions to single nodes of a syntax tree, and names that several readings share."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Attributes and calls whose result does not depend on the numbers in a tensor.
METADATA = frozenset("shape dtype device ndim layout is_cuda requires_grad itemsize nbytes".split())
METADATA_CALLS = frozenset(
    "size numel nelement dim stride is_contiguous element_size get_device len isinstance".split()
)
# Calls whose memory is worth nothing until something else has written to it.
ALLOCATORS = frozenset("empty empty_like empty_strided new_empty zeros zeros_like new_zeros".split())


def class_named(tree: ast.Module, *names: str) -> ast.ClassDef | None:
    """Return the class at the top of a module that has the first of these names that any has; None without one."""
    classes = {node.name: node for node in reversed(tree.body) if isinstance(node, ast.ClassDef)}
    return next((classes[name] for name in names if name in classes), None)


def function_named(tree: ast.Module | ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """Return the last function of a module, or method of a class, that has this name; None without one."""
    functions = (node for node in reversed(tree.body) if isinstance(node, ast.FunctionDef))
    return next((function for function in functions if function.name == name), None)


def required_arguments(function: ast.FunctionDef) -> list[str]:
    """Return the names of a function's arguments without defaults, `self` of a method among them."""
    signature = function.args
    positional = [*signature.posonlyargs, *signature.args]
    required = positional[: len(positional) - len(signature.defaults)]
    named = zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
    return [argument.arg for argument in (*required, *(only for only, default in named if default is None))]


def last_name(node: ast.AST) -> str:
    """Return `c` of `a.b.c` and of `c`; empty when it is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def self_attribute(node: ast.AST) -> str:
    """Return `x` of `self.x`, `self.x[...]` and `self.x.y()`; empty for `self.x()` and what is not of self."""
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return node.attr
        if isinstance(node, ast.Call):  # a method of x gives what belongs to x, a call of x something new
            node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            if isinstance(node, ast.Name):
                return ""
        else:
            node = node.value
    return ""


def root_name(node: ast.AST) -> str:
    """Return `x` of `x`, `x[...]`, `x.y` and `x.y()`."""
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield (target, value) of what gives a target a value: tuples taken apart where both sides show their parts."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.target, node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    sides = (ast.Tuple, ast.List)
    if isinstance(target, sides) and isinstance(value, sides) and len(target.elts) == len(value.elts):
        for first, second in zip(target.elts, value.elts, strict=True):
            yield from _pairs(first, second)
    else:
        yield target, value
