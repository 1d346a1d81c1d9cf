"""Single expressions: arguments of a call, names of torch written in full, arithmetic over sizes."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.source.parsing import parse_expression

# What a text may call without the prefix torch: `randn(64, 128)` is torch.randn(64, 128).
TORCH_NAMES = frozenset(
    "arange empty eye full linspace normal ones rand randint randn randperm tensor zeros bfloat16 complex64 "
    "complex128 double float16 float32 float64 half int8 int16 int32 int64 long uint8".split()
)
_OPERATORS: dict[type[ast.operator | ast.unaryop], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
# Largest value of an expression over sizes, and of each part of it: what a size in bytes may be.
_LARGEST = 2**63


def call_arguments(text: str, what: str) -> tuple[list[str], dict[str, str]]:
    """Return the arguments by position and by name of `randn(64, 128), mask=None`, as between a call's brackets.

    Raises:
        UserError: naming `what` when it is no list of arguments.
    """
    try:
        call = parse_expression(f"f({text}\n)").body
    except SyntaxError:
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise UserError(f'{what} {text!r}: write it like the arguments of a call, "randn(64, 128), 3"')
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(
        key.arg is None for key in call.keywords
    ):
        raise UserError(f"{what} {text!r}: each argument by itself, without * or **")
    try:
        named = {str(key.arg): ast.unparse(key.value) for key in call.keywords}
        return [ast.unparse(argument) for argument in call.args], named
    except RecursionError:
        raise UserError(f"{what}: nested too deeply") from None


def whole_number(text: str, sizes: Mapping[str, int]) -> int | None:
    """Return the value of arithmetic over sizes, rounded towards zero; None for any other text, which is not run, and
    for values beyond 64 bits.
    """
    try:
        return int(_value(parse_expression(text).body, sizes))
    except (SyntaxError, KeyError, ArithmeticError, TypeError, ValueError, RecursionError):
        return None


def _value(node: ast.expr, sizes: Mapping[str, int]) -> float:
    """Return the value of a part of an expression; raises what arithmetic raises, and KeyError for what is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        value: float = node.value
    elif isinstance(node, ast.Name):
        value = sizes[node.id]
    elif isinstance(node, ast.UnaryOp):
        value = _OPERATORS[type(node.op)](_value(node.operand, sizes))
    elif isinstance(node, ast.BinOp):
        left, right = _value(node.left, sizes), _value(node.right, sizes)
        if isinstance(node.op, ast.Pow):
            float(left) ** float(right)  # overflows at once where whole numbers would fill the memory
        value = _OPERATORS[type(node.op)](left, right)
    else:
        raise KeyError(type(node).__name__)
    if abs(value) > _LARGEST:
        raise OverflowError
    return value


def qualified(text: str, what: str, defined: frozenset[str]) -> str:
    """Return the expression with torch's names written in full.

    Args:
        what: what the expression is, for messages.
        defined: names with their values.

    Raises:
        UserError: where it is no expression, or uses a name that is neither defined nor torch's.
    """
    try:
        tree = parse_expression(text.strip())
        bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        return ast.unparse(_Names(what, defined | bound).visit(tree))
    except SyntaxError as error:
        raise UserError(f"{what} {_short(text)}: not a Python expression ({error})") from None
    except RecursionError:
        raise UserError(f"{what}: nested too deeply") from None


class _Names(ast.NodeTransformer):
    def __init__(self, what: str, defined: frozenset[str]):
        self._what, self._known = what, defined

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in self._known or node.id == "torch":
            return node
        if node.id in TORCH_NAMES:
            return ast.Attribute(ast.Name("torch", ast.Load()), node.id, ast.Load())
        raise UserError(
            f"{self._what}: {node.id!r} is not defined in the source; torch's names may be spelt out, torch.{node.id}"
        )

    def visit_Yield(self, node: ast.expr) -> Any:
        raise UserError(f"{self._what}: a value is wanted, without yield and await")

    visit_YieldFrom = visit_Await = visit_Yield


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")
