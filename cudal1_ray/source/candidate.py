"""A candidate read once, as the re-checks want it: what it does when it is called, and what it only sets up."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar, overload

from cudal1_ray.source.module_class import class_with_bases
from cudal1_ray.source.nodes import ALLOCATORS, class_named, last_name, self_attribute
from cudal1_ray.source.parsing import parse

_A = TypeVar("_A", bound=ast.AST)
_B = TypeVar("_B", bound=ast.AST)
_C = TypeVar("_C", bound=ast.AST)


class CandidateReading:
    """The syntax tree of a candidate in parts.

    Attributes:
        tree: the whole module.
        model: its class `ModelNew`, of a reference `Model`, and the classes of the file that it inherits from.
        call_time, set_up: the methods that run in every call (all but `__init__`), and the others, inherited ones too.
        arguments: names of the arguments of `forward`, or of `__call__` where it is that.

    Raises SyntaxError when the code is not Python.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        self.tree = parse(code)
        model = class_named(self.tree, "ModelNew", "Model")
        classes = {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}
        self.model = class_with_bases(model, classes).line if model else ()
        methods: dict[str, ast.FunctionDef] = {}
        for definition in reversed(self.model):
            methods |= {node.name: node for node in definition.body if isinstance(node, ast.FunctionDef)}
        self.call_time = [method for name, method in methods.items() if name != "__init__"]
        self.set_up = [methods["__init__"]] if "__init__" in methods else []
        entry = methods.get("forward", methods.get("__call__"))
        self.arguments = {arg.arg for arg in entry.args.args if arg.arg != "self"} if entry else set()

    @overload
    def in_calls(self, kind: type[_A], /) -> Iterator[_A]: ...
    @overload
    def in_calls(self, kind: type[_A], second: type[_B], /) -> Iterator[_A | _B]: ...
    @overload
    def in_calls(self, kind: type[_A], second: type[_B], third: type[_C], /) -> Iterator[_A | _B | _C]: ...
    def in_calls(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Yield all nodes of these kinds in the methods that run in every call."""
        for method in self.call_time:
            yield from (node for node in ast.walk(method) if isinstance(node, kinds))

    def calls(self, *names: str) -> list[ast.Call]:
        """Return the calls, in every call, of functions or methods with one of these last names; all without a name."""
        return [node for node in self.in_calls(ast.Call) if not names or last_name(node.func) in names]

    def returned(self) -> list[ast.expr]:
        """Return what `forward` and `__call__` return, each name replaced by the expression last assigned to it."""
        expressions = []
        for method in (candidate for candidate in self.call_time if candidate.name in ("forward", "__call__")):
            values = {}
            for node in ast.walk(method):
                if isinstance(node, ast.Assign):
                    names = [name for t in node.targets for name in (t.elts if isinstance(t, ast.Tuple) else [t])]
                    values.update({name.id: node.value for name in names if isinstance(name, ast.Name)})
            for node in ast.walk(method):
                if isinstance(node, ast.Return) and node.value is not None:
                    name = node.value.id if isinstance(node.value, ast.Name) else ""
                    expressions.append(values.get(name, node.value))
        return expressions

    def state_set_in_calls(self) -> dict[str, bool]:
        """Return the attributes of self that calls assign, and whether each is assigned only under a condition."""
        guards: dict[str, bool] = {}
        for method in self.call_time:
            guarded = {id(inner) for node in ast.walk(method) if isinstance(node, ast.If) for inner in ast.walk(node)}
            for node in ast.walk(method):
                for target in _targets(node):
                    name = self_attribute(target)
                    if name:
                        guards[name] = guards.get(name, True) and id(node) in guarded
        return guards

    @property
    def methods(self) -> list[ast.FunctionDef]:
        """Return the methods that only set up, then those that run in every call."""
        return [*self.set_up, *self.call_time]

    def operations(self) -> Counter[str]:
        """Count the calls of each function or method, by its last name, and each operator, in all methods."""
        nodes = [node for method in self.methods for node in ast.walk(method)]
        called = Counter(last_name(node.func) for node in nodes if isinstance(node, ast.Call))
        return called + Counter(type(node.op).__name__ for node in nodes if isinstance(node, (ast.BinOp, ast.UnaryOp)))

    def idle_options(self) -> set[str]:
        """Return the attributes of self that are set up as plain values and that no call reads."""
        values = [node for method in self.set_up for node in ast.walk(method) if isinstance(node, ast.Assign)]
        plain = {
            self_attribute(assignment.targets[0])
            for assignment in values
            if isinstance(assignment.value, (ast.Constant, ast.Name))
        }
        return plain - {self_attribute(node) for node in self.in_calls(ast.Attribute)} - {""}

    def buffers(self) -> set[str]:
        """Return the attributes of self to which uninitialised or zero memory is assigned anywhere."""
        attributes = set()
        for node in (inner for definition in self.model for inner in ast.walk(definition)):
            if isinstance(node, ast.Assign) and any(
                isinstance(part, ast.Call) and last_name(part.func) in ALLOCATORS for part in ast.walk(node.value)
            ):
                attributes |= {name for target in node.targets for name in [self_attribute(target)] if name}
        return attributes


def branches_around(method: ast.AST, node: ast.AST) -> set[int]:
    """Return the branches that a node stands in, each by the identity of its first statement."""
    return {
        id(branch[0])
        for branching in ast.walk(method)
        if isinstance(branching, ast.If)
        for branch in (branching.body, branching.orelse)
        if branch and any(node is inner for statement in branch for inner in ast.walk(statement))
    }


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        yield node.target
