"""Code as tokens that are the same for two programs that do the same under other names."""

from __future__ import annotations

import ast
import re

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
    """Replaces what an author may name as he likes; `result` is the tree without the imports it has resolved."""

    def __init__(self, tree: ast.Module) -> None:
        self._aliases: dict[str, str] = {}
        self._bound: set[str] = set()
        self._own: set[str] = set()  # functions and variables that may be attributes of a class, and those set on self
        self._parameters: dict[str, set[str]] = {}  # function or class -> what its calls may name
        for node in ast.walk(tree):
            self._collect(node)
        self._own -= {"forward"}
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
            self._own.add(node.name)
            fields = _class_variables(node) if isinstance(node, ast.ClassDef) else set()
            self._own |= fields
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
