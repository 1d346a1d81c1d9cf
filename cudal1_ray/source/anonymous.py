"""Code as tokens that are the same for two programs that do the same under other names."""

from __future__ import annotations

import ast
import functools
import re

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

    Comments and formatting aside; numbers, strings and names within inline CUDA and C++ have to be the same.
    """
    words, others = _words(code), _words(other)
    pairs = set(zip(words, others, strict=False))
    renamed = {pair for pair in pairs if pair[0] != pair[1]}
    if len(words) != len(others) or any(len(set(side)) < len(pairs) for side in zip(*pairs, strict=True)):
        return False
    if not renamed:
        return True
    ours, theirs = (set(side) for side in zip(*renamed, strict=True))
    return ours <= _own_names(code) and theirs <= _own_names(other) and tokens(code) == tokens(other)


@functools.lru_cache(maxsize=1024)
def _words(code: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(bare_code(code)))


def _own_names(code: str) -> set[str]:
    """Return the names that the code binds, attributes of `self` included; none of text that is not Python."""
    try:
        return _Anonymous(parse(code)).names
    except (SyntaxError, RecursionError):
        return set()


def without_inputs(reference: str) -> str:
    """Return the text of a problem without `get_inputs()` and `get_init_inputs()`; as it is when it is not Python."""
    try:
        tree = parse(reference, PROBLEM)
    except SyntaxError:
        return reference
    inputs = ("get_inputs", "get_init_inputs")
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in inputs)]
    return ast.unparse(tree)


class _Anonymous(ast.NodeTransformer):
    """Replaces what an author may name as he likes; `result` is the tree without the imports it has resolved,
    `names` are those that it binds.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._aliases: dict[str, str] = {}
        self._bound: set[str] = set()
        self._own: set[str] = set()  # attributes set on self, and methods
        for node in ast.walk(tree):
            self._collect(node)
        self._own -= {"forward"}
        self.names = {*self._bound, *self._own, *self._aliases}
        self.result = ast.fix_missing_locations(self.visit(tree))

    def _collect(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                self._aliases[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self._aliases[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}".strip(".")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._bound.add(node.name)
            self._own.add(node.name)
        elif isinstance(node, ast.arg):
            self._bound.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._bound.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                self._own.add(node.attr)

    def _name(self, name: str) -> str:
        if name in ("self", "forward", "__init__", "__call__"):
            return name
        if name in ("Model", "ModelNew"):
            return "Model"
        if name in self._bound:
            return "VAR"
        return self._aliases.get(name, name)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return None if all(alias.name.split(".")[0] == "torch" for alias in node.names) else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if (node.module or "").split(".")[0] == "torch" else node

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

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.visit_ClassDef(node)

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
        return node  # a placeholder cannot stand inside an f-string
