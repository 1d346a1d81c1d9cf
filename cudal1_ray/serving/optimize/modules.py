"""From a module as people have it to a problem: its class becomes `Model`, and example inputs become functions.

Text is read by its syntax tree and written anew; nothing in it is executed here. Whether the module runs on its
examples, the evaluator's sandbox finds out.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cudal1_ray.errors import UserError
from cudal1_ray.problems import parse_problem
from cudal1_ray.serving.optimize.examples import Example, expression_of
from cudal1_ray.source.expressions import call_arguments, qualified
from cudal1_ray.source.module_class import ModuleClass, find_class, rename_class
from cudal1_ray.source.names import top_level_names
from cudal1_ray.source.parsing import parse_named

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
        """Read `randn(64, 128), mask=None` as it would stand between the brackets of a call.

        Raises:
            UserError: naming `what` when it is no list of arguments.
        """
        positional, named = call_arguments(text, what)
        return cls(tuple(positional), named)


def complete_module(
    source: str,
    inputs: Arguments | None = None,
    init_inputs: Arguments | None = None,
    class_name: str = "",
    origin: str = "source",
    option: str = "inputs",
) -> str:
    """Return a problem's source: `source` itself where it is one already, else with what was missing.

    Args:
        source: a Python file with a subclass of `nn.Module`.
        inputs: examples for `forward`; written as `get_inputs()`. None where the source has that function.
        init_inputs: arguments for the constructor; written as `get_init_inputs()`. None: the source's own, or none.
        class_name: which class is meant, where there are several; it is renamed to `Model`.
        origin: what to call the source in messages.
        option: what to call `inputs` there.

    Raises:
        UserError: when the source does not parse, the class is not clear, or examples do not fit its `__init__`
            or `forward`, as far as their signatures show.
    """
    tree = parse_named(source, origin)
    names = top_level_names(tree)
    for function, examples in (("get_inputs", inputs), ("get_init_inputs", init_inputs)):
        if function in names and examples is not None:
            raise UserError(f"{origin}: has {function}() already; leave the examples for it out, or the function")
    if "get_inputs" not in names and inputs is None:
        raise UserError(
            f"{origin}: no get_inputs(), so give example inputs ({option}), "
            'like "randn(64, 128)" or a shape and a dtype'
        )
    whole = {"get_inputs", "get_init_inputs"} <= names
    if whole and (not class_name or class_name == "Model"):
        parse_problem(source, "module", origin=origin)
        return source
    module = find_class(tree, class_name, origin)
    parts = [rename_class(source, tree, module.name, "Model", origin).rstrip("\n") + "\n"]
    if "torch" not in names and not whole:
        parts.append("import torch\n")
    defined = _BUILTINS | names
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
        qualified(expression_of(example, f"{what}[{i}]"), f"{what}[{i}]", defined)
        for i, example in enumerate(examples.positional)
    ]
    named = {key: qualified(expression_of(value, f"{what}.{key}"), f"{what}.{key}", defined)
             for key, value in examples.named.items()}  # fmt: skip
    return f"def {name}():\n    return [{', '.join(module.in_order(method, texts, named, what))}]\n"
