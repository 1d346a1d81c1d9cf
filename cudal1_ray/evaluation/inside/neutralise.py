"""A candidate's code with handlers that re-raise: own code that works is measured, own code that fails is reported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from typing import Any

# Name of `is_expected_error` in the rewritten module.
EXPECTED_ERROR = "__expected_error__"
_EXPECTED = (MemoryError, ImportError, LookupError, StopIteration)
# Names of torch's and Triton's expected errors.
_EXPECTED_NAMES = ("OutOfMemoryError", "OutOfResources")


def is_expected_error() -> bool:
    """Return whether the current exception leaves honest alternatives: smaller pieces, another library, a new entry."""
    error = sys.exc_info()[1]
    return (
        isinstance(error, _EXPECTED)
        or any(kind.__name__ in _EXPECTED_NAMES for kind in type(error).__mro__)
        or "out of memory" in str(error)
    )


def neutralised(tree: ast.Module, places: Iterable[tuple[int, int]]) -> ast.Module:
    """Return `tree`, changed in place: the handlers at `places` swallow only expected errors."""
    return ast.fix_missing_locations(_Neutralised({(line, column) for line, column in places}).visit(tree))


class _Neutralised(ast.NodeTransformer):
    def __init__(self, places: set[tuple[int, int]]) -> None:
        self._places = places

    def _is_meant(self, node: ast.stmt | ast.expr | ast.excepthandler) -> bool:
        return (node.lineno, node.col_offset) in self._places

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        meant = self._is_meant(node)
        self.generic_visit(node)
        if meant:
            unexpected = ast.UnaryOp(ast.Not(), ast.Call(ast.Name(EXPECTED_ERROR, ast.Load()), [], []))
            node.body.insert(0, ast.copy_location(ast.If(unexpected, [ast.Raise()], []), node))
        return node

    def visit_Try(self, node: Any) -> ast.AST:
        meant = self._is_meant(node)
        self.generic_visit(node)
        if meant:  # a return there would discard the error
            node.finalbody = [_WithoutReturns().visit(statement) for statement in node.finalbody]
        return node

    visit_TryStar = visit_Try

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        node.items = [item for item in node.items if not self._is_meant(item.context_expr)]
        return node if node.items else ast.copy_location(ast.If(ast.Constant(True), node.body, []), node)


class _WithoutReturns(ast.NodeTransformer):
    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.copy_location(ast.Expr(node.value or ast.Constant(None)), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node
