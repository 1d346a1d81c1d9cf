"""Where a candidate's inputs go: into code whose failure is caught, and something else done instead."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from cudal1_ray.source.names import FUNCTIONS, Function, Names, parameters
from cudal1_ray.source.nodes import ALLOCATORS, METADATA, METADATA_CALLS, assignments, last_name, root_name

_ENTRIES = ("forward", "__call__")
# Passes over the tree until what is derived from an input is known; chains of names are short.
_ROUNDS = 8
# Most functions of one name whose calls are followed.
_NAMESAKES = 16
# Calls that prepare a graph.
_CAPTURES = {"CUDAGraph", "graph", "capture_begin", "make_graphed_callables"}
# Errors that leave a candidate something honest to do: smaller pieces, another library, a new entry.
_NARROW = re.compile(
    r"(torch\.((cuda|_C)\.)?OutOfMemoryError|triton\b.*\.OutOfResources|MemoryError|ImportError|ModuleNotFoundError"
    r"|KeyError|IndexError|StopIteration)$"
)


class Flow:
    """Follows the parameters of forward through names, attributes of self and the candidate's own functions."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.by_name: dict[str, list[Function]] = {}
        for function in names.functions:
            if not isinstance(function, ast.Lambda):
                self.by_name.setdefault(function.name, []).append(function)
        self._inputs: set[tuple[ast.AST, str]] = set()  # (scope, name) of what is derived from an input
        self._buffers: set[tuple[ast.AST, str]] = set()  # ... of memory that something else must write to
        self._stored_inputs: set[str] = set()  # attributes of self that hold an input itself
        self._reads: dict[ast.AST, Counter[str]] = {}  # function -> how often it reads a name or an attribute of self
        self._all = [node for nodes in names.nodes.values() for node in nodes]
        self._start()
        for _ in range(_ROUNDS):
            if not self._spread():
                break

    def swallowing(self) -> Iterator[ast.ExceptHandler | ast.Try | ast.TryStar | ast.Call]:
        """Yield what lets forward go on without its own code when that fails.

        These are handlers, suppressing context managers, and `try` statements whose `finally` returns.
        """
        for node in self._at_call_time():
            yield from self._swallowing(node)

    def _start(self) -> None:
        """Make inputs of the parameters of forward, and of functions that are not called with plain arguments here."""
        called = {node.func for node in self._all if isinstance(node, ast.Call)}
        passed_on = {last_name(node) for node in self._all if node not in called}
        self._followed = {last_name(function) for function in called} - passed_on
        self._followed &= {name for name, functions in self.by_name.items() if len(functions) <= _NAMESAKES}
        for function in self.names.functions:
            name = "" if isinstance(function, ast.Lambda) else function.name
            if name in _ENTRIES or (name != "__init__" and name not in self._followed):
                names = parameters(function)
                self._inputs |= {(function, argument) for argument in names if argument not in ("self", "cls", "ctx")}

    def _spread(self) -> bool:
        before = len(self._inputs), len(self._stored_inputs)
        for node in self._all:
            for target, value in assignments(node):
                self._assign(target, value)
            if isinstance(node, ast.Call):
                self._pass(node)
        return before != (len(self._inputs), len(self._stored_inputs))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Attribute) and self._is_input_name(value):
            self._stored_inputs.add(target.attr)
        names = [part for part in ast.walk(target) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
        places = {(self.names.binder(part) or self.names.tree, part.id) for part in names}
        if places and self.holds_input(value):
            self._inputs |= places
        if places and isinstance(value, ast.Call) and last_name(value.func) in ALLOCATORS:
            self._buffers |= places

    def _pass(self, call: ast.Call) -> None:
        """Make arguments of a call parameters of the candidate's own functions."""
        for function in self.by_name[last_name(call.func)] if last_name(call.func) in self._followed else ():
            names = parameters(function)
            if names and names[0] in ("self", "cls") and isinstance(call.func, ast.Attribute):
                names = names[1:]
            pairs = list(zip(names, call.args, strict=False))
            pairs += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg in names]
            for name, value in pairs:
                if self.holds_input(value):
                    self._inputs.add((function, name))

    def holds_input(self, *trees: ast.AST) -> bool:
        """Return whether a value that comes from an input occurs here; its shape, dtype and device do not count."""
        waiting = list(trees)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Attribute) and node.attr in METADATA:
                continue
            if isinstance(node, ast.Call) and last_name(node.func) in METADATA_CALLS:
                continue
            if isinstance(node, ast.Name) and (self.names.binder(node), node.id) in self._inputs:
                return True
            if isinstance(node, ast.Attribute) and node.attr in self._stored_inputs and root_name(node) == "self":
                return True
            waiting += ast.iter_child_nodes(node)
        return False

    def _is_input_name(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and (self.names.binder(node), node.id) in self._inputs

    def _at_call_time(self) -> Iterator[ast.AST]:
        """Yield the nodes of forward and of all that it mentions, functions kept in self included."""
        waiting: list[ast.AST] = [function for name in _ENTRIES for function in self.by_name.get(name, ())]
        visited: set[ast.AST | str] = set()
        while waiting:
            scope = waiting.pop()
            if scope in visited:
                continue
            visited.add(scope)
            for node in self.names.nodes.get(scope, (scope,)):
                yield node
                if isinstance(node, FUNCTIONS):
                    waiting.append(node)
                attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                name = last_name(node) if attribute or isinstance(node, ast.Name) else ""
                if name and (mentioned := f".{name}" if attribute else name) not in visited:
                    visited.add(mentioned)
                    waiting += self.by_name.get(name, ())
                    values = self.names.attribute_values.get(name, ()) if attribute else ()
                    waiting += [function for value in values for function in _functions_in(value)]

    def _swallowing(self, node: ast.AST) -> Iterator[ast.ExceptHandler | ast.Try | ast.TryStar | ast.Call]:
        """Yield what catches any error in work on the inputs and does something else instead."""
        if isinstance(node, (ast.Try, ast.TryStar)):
            broad = [handler for handler in node.handlers if self._is_broad(handler.type) and not _raises(handler.body)]
            instead = [statement for handler in broad for statement in handler.body]
            if broad and self._answers(node, node.body, instead):
                yield from broad
            returns = any(isinstance(inner, ast.Return) for last in node.finalbody for inner in ast.walk(last))
            if returns and self.holds_input(*node.body):
                yield node
        if isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and self.names.name(call.func) == "contextlib.suppress":
                    if any(self._is_broad(kind) for kind in call.args) and self._answers(node, node.body, []):
                        yield call

    def _answers(self, node: ast.AST, body: list[ast.stmt], handler: list[ast.stmt]) -> bool:
        """Return whether what is tried, or done instead, is a part of the answer: returned, used, or written there.

        A graph may be captured, or the fastest of several ways searched, with nothing but a flag to show for it.
        """
        if not self.holds_input(*body, *handler):
            return False
        inside = [inner for part in [*body, *handler] for inner in ast.walk(part)]
        called = {last_name(inner.func) for inner in inside if isinstance(inner, ast.Call)}
        if called & _CAPTURES and "replay" not in called:
            return self.holds_input(*handler)
        read = self._read_outside(self.names.scope[node], inside)
        for inner in inside:
            if isinstance(inner, ast.Return) and not isinstance(inner.value, ast.Constant | None):
                return True
            if any(_assigned_name(target) in read and self.holds_input(value) for target, value in assignments(inner)):
                return True
            if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
                names = (part for part in ast.walk(inner.value) if isinstance(part, ast.Name))
                if any(part.id in read and (self.names.binder(part), part.id) in self._buffers for part in names):
                    return True
        return False

    def _read_outside(self, function: ast.AST, inside: list[ast.AST]) -> set[str]:
        """Return the names and attributes of self that a function reads elsewhere than `inside`."""
        if function not in self._reads:
            self._reads[function] = Counter(map(_loaded_name, self.names.nodes[function]))
        within = Counter(_loaded_name(part) for part in inside if self.names.scope[part] is function)
        return (self._reads[function] - within).keys() - {""}

    def _is_broad(self, kind: ast.expr | None) -> bool:
        if isinstance(kind, ast.Tuple):
            return any(self._is_broad(element) for element in kind.elts)
        return kind is None or not _NARROW.match(self.names.name(kind))


def _raises(body: list[ast.stmt]) -> bool:
    """Return whether a `raise` ends it, other than behind a constant condition."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise):
            return True
        constant = isinstance(node, (ast.If, ast.While)) and isinstance(node.test, ast.Constant)
        if not constant and not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
    return False


def _functions_in(value: ast.expr) -> list[ast.AST]:
    """Return names, attributes and lambdas in a value: each may be a function that is called later."""
    kinds = (ast.Name, ast.Attribute, ast.Lambda)
    return [part for part in ast.walk(value) if isinstance(part, kinds)]


def _loaded_name(node: ast.AST) -> str:
    return _assigned_name(node) if isinstance(getattr(node, "ctx", None), ast.Load) else ""


def _assigned_name(node: ast.AST) -> str:
    """Return a name, or an attribute of self as `self.name`; empty for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
