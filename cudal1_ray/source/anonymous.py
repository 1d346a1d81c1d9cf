"""Code as tokens that are the same for two programs that do the same under other names."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cudal1_ray.source.nodes import last_name
from cudal1_ray.source.normal_form import bare_code
from cudal1_ray.source.parsing import PROBLEM, parse

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")
_NOISE = frozenset(",;:'\"")
# Characters; longer literals are taken for source code and compared token by token.
_LONG_STRING = 40


def tokens(code: str) -> list[str]:
    """Return the code's tokens, with a placeholder for each that its author was free to name or to choose.

    Names that the code itself binds become VAR, attributes that it sets on `self` become ATTR, numbers above 2 become
    NUM and short strings STR; what it imports is written out (F.relu is torch.nn.functional.relu). Text that is not
    Python is split as it stands.
    """
    text = bare_code(code)
    try:
        tree = _Anonymous(parse(text)).result
        text = ast.unparse(tree)
    except (SyntaxError, RecursionError):
        pass
    return [token for token in _TOKEN.findall(text) if token not in _NOISE]


def same_except_names(code: str, other: str) -> bool:
    """Return whether two codes differ in nothing but the names that they bind: one takes the other's place everywhere.

    Comments, formatting and the module's imports aside, whose names are compared where they are used; numbers, strings
    and names within inline CUDA and C++ have to be the same.
    """
    ours, theirs = _read(code), _read(other)
    pairs = set(zip(ours.words, theirs.words, strict=False))
    if len(ours.words) != len(theirs.words) or any(len(set(side)) < len(pairs) for side in zip(*pairs, strict=True)):
        return False
    renamed = [pair for pair in pairs if pair[0] != pair[1]]
    own = all(name in ours.names and new_name in theirs.names for name, new_name in renamed)
    return own and ours.anonymous_words == theirs.anonymous_words


@dataclass(frozen=True)
class _Reading:
    """A code's words in the order of its syntax tree, those with placeholders, and the names that it binds."""

    words: tuple[str, ...]
    anonymous_words: tuple[str, ...]
    names: frozenset[str]


@functools.lru_cache(maxsize=1024)
def _read(code: str) -> _Reading:
    """Return the reading of a code; text that is not Python is one word."""
    text = bare_code(code)
    try:
        anonymous, tree = _Anonymous(parse(text)), parse(text)
        anonymous.mark_foreign(tree)
        words, anonymous_words = (tuple(_words(module, anonymous)) for module in (tree, anonymous.result))
        return _Reading(words, anonymous_words, frozenset(anonymous.names))
    except (SyntaxError, RecursionError):
        return _Reading((text,), (), frozenset())


def _words(tree: ast.Module, anonymous: _Anonymous) -> Iterator[str]:
    """Yield what `tree` consists of, without the module's imports: types of nodes, lengths of lists, names, literals.

    A literal is written as Python shows it: a string is no name of the same letters.
    """
    tree.body = [node for node in tree.body if not anonymous.writes_out(node)]
    for node in ast.walk(tree):
        yield f"<{type(node).__name__}>"
        for _, value in ast.iter_fields(node):
            if isinstance(value, list):
                yield f"<{len(value)}>"
            for part in value if isinstance(value, list) else [value]:
                if isinstance(node, ast.Constant) or not isinstance(part, (str, ast.AST)):
                    yield repr(part)
                elif isinstance(part, str):
                    yield part


def without_inputs(reference: str) -> str:
    """Return the text of a problem without `get_inputs()` and `get_init_inputs()`; as it is when it is not Python."""
    try:
        tree = parse(reference, PROBLEM)
    except SyntaxError:
        return reference
    inputs = ("get_inputs", "get_init_inputs")
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in inputs)]
    return ast.unparse(tree)


def _class_variables(node: ast.ClassDef) -> set[str]:
    """Return the names that a class's body binds outside its methods and inner classes."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    parts = (part for line in node.body if not isinstance(line, definitions) for part in ast.walk(line))
    return {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _callee(node: ast.Call) -> ast.expr:
    """Return what a call calls: `f` of `f(...)` and, for a Triton kernel, of `f[grid](...)`."""
    return node.func.value if isinstance(node.func, ast.Subscript) else node.func


class _Anonymous(ast.NodeTransformer):
    """Replaces what an author may name as he likes; `result` is the tree without the imports it has resolved,
    `names` are those that it binds, attributes of `self` as `mark_foreign` writes them.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._aliases: dict[str, str] = {}
        self._bound: set[str] = set()
        self._members: set[str] = set()  # functions and variables that may be attributes of a class
        self._own: set[str] = set()  # these, and attributes set on self
        self._parameters: dict[str, set[str]] = {}  # function or class -> what its calls may name
        for node in ast.walk(tree):
            self._collect(node)
        self._own = (self._own | self._members) - {"forward"}
        self.names = {*self._bound, *self._aliases, *(f".{name}" for name in self._own)}
        self.result = ast.fix_missing_locations(self.visit(tree))

    def _collect(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                self._add_import(alias.asname or name, name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self._add_import(alias.asname or alias.name, f"{node.module or ''}.{alias.name}".strip("."))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._bound.add(node.name)
            self._members.add(node.name)
            fields = _class_variables(node) if isinstance(node, ast.ClassDef) else set()
            self._members |= fields
            parameters = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
            self._parameters.setdefault(node.name, set()).update(fields | parameters)
        elif isinstance(node, ast.arg):
            self._bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self._bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._bound.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                self._own.add(node.attr)

    def _add_import(self, name: str, target: str) -> None:
        if self._aliases.setdefault(name, target) != target:
            self._bound.add(name)  # a name of two targets stands for neither

    def writes_out(self, node: ast.stmt) -> bool:
        """Return whether a statement only imports names whose every use `result` writes out."""
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            return False
        names = {alias.asname or alias.name for alias in node.names}
        return "*" not in names and not names & self._bound

    def mark_foreign(self, tree: ast.Module) -> None:
        """Put a dot before attributes, and names of arguments, that cannot be a variable or function of the code."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr not in self._members:
                node.attr = f".{node.attr}"
            elif isinstance(node, ast.Call) and not self._is_own_callee(node):
                for keyword in node.keywords:
                    keyword.arg = keyword.arg and f".{keyword.arg}"

    def _is_own_callee(self, node: ast.Call) -> bool:
        callee = _callee(node)
        if isinstance(callee, ast.Attribute):
            return callee.attr.removeprefix(".") in self._own | {"forward"}
        return not isinstance(callee, ast.Name) or callee.id in self._bound

    def _name(self, name: str) -> str:
        if name in ("self", "forward", "__init__", "__call__"):
            return name
        if name in ("Model", "ModelNew"):
            return "Model"
        if name in self._bound:
            return "VAR"
        return self._aliases.get(name, name)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return None if all(alias.name.split(".")[0] == "torch" for alias in node.names) else self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if (node.module or "").split(".")[0] == "torch" else self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> ast.AST:
        node.asname = None
        return node

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = [self._name(name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = node.name and self._name(node.name)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace the names of arguments that the code's own functions, classes and methods have, kernels included."""
        callee = _callee(node)
        on_self = isinstance(callee, ast.Attribute) and getattr(callee.value, "id", "") == "self"
        name = last_name(callee) if on_self or isinstance(callee, ast.Name) else ""
        own = self._parameters.get(name, set())
        for keyword in node.keywords:
            if keyword.arg in own:
                keyword.arg = self._name(keyword.arg)
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if ast.unparse(node).startswith(
            "super("
        ):  # super().__init__(), in every candidate that has something to set up
            return None
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = self._name(node.arg), None
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        own = isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in self._own
        self.generic_visit(node)
        node.attr = "ATTR" if own else node.attr
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.AST]:
        """Split `a, b = x, y` into `a = x` and `b = y`, which do the same."""
        self.generic_visit(node)
        target, value = node.targets[0], node.value
        if len(node.targets) > 1 or not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
            return node
        if len(target.elts) != len(value.elts) or any(
            isinstance(part, ast.Starred) for part in target.elts + value.elts
        ):
            return node
        pairs = zip(target.elts, value.elts, strict=True)
        return [ast.Assign(targets=[part], value=part_value, lineno=node.lineno) for part, part_value in pairs]

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.visit_ClassDef(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node):
        node.name = self._name(node.name)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            return ast.Name("NUM", ast.Load()) if abs(node.value) > 2 else node
        if isinstance(node.value, (str, bytes)) and len(node.value) <= _LONG_STRING:
            return ast.Name("STR", ast.Load())
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Leave the text of an f-string, in which a placeholder cannot stand; visit what it formats."""
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part)
        return node
