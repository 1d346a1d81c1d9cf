"""From a module as people have it to a problem: its class becomes `Model`, and example inputs become functions.

Text is read by its syntax tree and written anew; nothing in it is executed here. Whether the module runs on its
examples, the evaluator's sandbox finds out.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.problems import parse_problem
from cudal1_ray.serving.optimize.examples import Example, expression_of
from cudal1_ray.serving.optimize.module_class import ModuleClass, find_class, parse, rename_class, top_level_names
from cudal1_ray.source.parsing import parse_expression

# What a text may call without saying torch: `randn(64, 128)` is torch.randn(64, 128).
TORCH_NAMES = frozenset(
    "arange empty eye full linspace normal ones rand randint randn randperm tensor zeros bfloat16 complex64 "
    "complex128 double float16 float32 float64 half int8 int16 int32 int64 long uint8".split()
)
_BUILTINS = frozenset(vars(builtins))


@dataclass(frozen=True)
class Arguments:
    """Examples of a call's arguments: by position, and by name."""

    positional: tuple[Example, ...] = ()
    named: Mapping[str, Example] = field(default_factory=dict)

    @classmethod
    def of(cls, examples: Sequence[Example] | Mapping[str, Example]) -> Arguments:
        return cls(named=dict(examples)) if isinstance(examples, Mapping) else cls(tuple(examples))

    @classmethod
    def parse(cls, text: str, what: str) -> Arguments:
        """Reads `randn(64, 128), mask=None` as it would stand between the brackets of a call.

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
            return cls(tuple(ast.unparse(argument) for argument in call.args), named)
        except RecursionError:
            raise UserError(f"{what}: nested too deeply") from None


def complete_module(
    source: str,
    inputs: Arguments | None = None,
    init_inputs: Arguments | None = None,
    class_name: str = "",
    origin: str = "source",
) -> str:
    """A problem's source: `source` itself where it is one already, else with what was missing.

    Args:
        source: a Python file with a subclass of `nn.Module`.
        inputs: examples for `forward`; written as `get_inputs()`. None where the source has that function.
        init_inputs: arguments for the constructor; written as `get_init_inputs()`. None: the source's own, or none.
        class_name: which class is meant, where there are several; it is renamed to `Model`.
        origin: what to call the source in messages.

    Raises:
        UserError: when the source does not parse, the class is not to be told, or examples do not fit its `__init__`
            or `forward`, as far as their signatures tell.
    """
    tree = parse(source, origin)
    names = top_level_names(tree)
    for function, examples in (("get_inputs", inputs), ("get_init_inputs", init_inputs)):
        if function in names and examples is not None:
            raise UserError(f"{origin}: has {function}() already; leave the examples for it out, or the function")
    if "get_inputs" not in names and inputs is None:
        raise UserError(
            f'{origin}: no get_inputs(), so give example inputs, like "randn(64, 128)" or a shape and a dtype'
        )
    whole = {"get_inputs", "get_init_inputs"} <= names.keys()
    if whole and (not class_name or class_name == "Model"):
        parse_problem(source, "module", origin=origin)
        return source
    module = find_class(tree, class_name, origin)
    parts = [rename_class(source, tree, module.name, "Model", origin).rstrip("\n") + "\n"]
    if "torch" not in names and not whole:
        parts.append("import torch\n")
    defined = _BUILTINS | frozenset(names)
    if "get_inputs" not in names:
        parts.append(_function("get_inputs", module, "forward", inputs or Arguments(), defined))
    if "get_init_inputs" not in names:
        parts.append(_function("get_init_inputs", module, "__init__", init_inputs or Arguments(), defined))
    completed = "\n\n".join(parts)
    parse_problem(completed, "module", origin=origin)
    return completed


def _function(name: str, module: ModuleClass, method: str, examples: Arguments, defined: frozenset[str]) -> str:
    what = name.removeprefix("get_")
    texts = [
        _qualified(expression_of(example, f"{what}[{i}]"), f"{what}[{i}]", defined)
        for i, example in enumerate(examples.positional)
    ]
    named = {key: _qualified(expression_of(value, f"{what}.{key}"), f"{what}.{key}", defined)
             for key, value in examples.named.items()}  # fmt: skip
    return f"def {name}():\n    return [{', '.join(module.in_order(method, texts, named, what))}]\n"


def _qualified(text: str, what: str, defined: frozenset[str]) -> str:
    """The expression with torch's names spelt out. UserError where it is none, or uses an undefined name."""
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
