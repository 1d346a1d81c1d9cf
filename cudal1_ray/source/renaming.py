"""Code with numbers in place of the names that it binds: the same for two codes that differ in such names alone.

A name is numbered in the scope that binds it, whatever another function calls its own; attributes of the code's classes
and functions of its extensions are numbered over all of it. What something outside the code reads keeps its name:
`ModelNew` and `forward`, attributes that the code does not set, arguments of functions that are not its own. So does
what may be read where the text does not show by which name: a parameter that is an argument of an unknown function or
the text of a string, an attribute of an object of unknown class, a function of an extension that another string has.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from cudal1_ray.source.names import FUNCTIONS, Function, ScopeNames, parameters
from cudal1_ray.source.native_names import FILE, read_native
from cudal1_ray.source.nodes import last_name
from cudal1_ray.source.normal_form import is_native, is_triton, normalise_code
from cudal1_ray.source.parsing import parse

# What names belong to: functions and classes of the code, its compiled extensions, other modules, or any of these.
_PARAMETER, _OWN, _EXTENSION, _FOREIGN, _UNKNOWN = "parameter", "own", "extension", "foreign", "unknown"
# Calls that compile inline sources; what else they are given as a string may be a name that a source declares.
_COMPILERS = ("load_inline", "_compile_kernel")
# What the name of an extension itself belongs to: nothing else reads it.
_TITLE = "title"
# Names of a candidate that the evaluator and torch read.
_PUBLIC = ("ModelNew", "forward")
_WORD = re.compile(r"[A-Za-z_]\w*")
# The fields in which nodes have names of variables.
_FIELDS: dict[type[ast.AST], str] = {
    ast.Name: "id",
    ast.arg: "arg",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}


def same_except_names(code: str, other: str) -> bool:
    """Return whether two codes differ in nothing but the names that they bind, each of these in its own scope.

    Comments, formatting and the module's imports aside, whose names are compared where they are used; numbers and
    strings have to be the same, except for the names that inline CUDA and C++ declare.
    """
    return with_numbered_names(code) == with_numbered_names(other)


@functools.lru_cache(maxsize=4096)
def with_numbered_names(code: str) -> str:
    """Return a code with numbers for the names that it binds; text that is not Python as `normalise_code` does."""
    normal = normalise_code(code)
    try:
        tree = parse(normal)
        _number(tree)
        return ast.unparse(tree)
    except (SyntaxError, RecursionError):
        return normal


def _number(tree: ast.Module) -> None:
    """Replace the names of a tree, and remove the imports at its top whose names are written out wherever they are."""
    names = _Numbers(tree)
    changes = list(names.changes())
    tree.body = [node for node in tree.body if not names.is_written_out(node)]
    for node, field, value in changes:
        setattr(node, field, value)


class _Numbers:
    """Reads which names of a tree are its own, and numbers them in the order of its nodes."""

    def __init__(self, tree: ast.Module) -> None:
        self._names = ScopeNames(tree)
        self._nodes = list(self._names.scope.items())
        self._numbers: dict[tuple[object, str], str] = {}
        self._receivers = {
            (function, parameters(function)[0])
            for function in self._names.functions
            if isinstance(self._names.scope[function], ast.ClassDef) and parameters(function)
            if "staticmethod" not in map(last_name, getattr(function, "decorator_list", ()))
        }
        self._attributes = self._names.members()  # of the code's classes, with their values
        self._exports: set[str] = set()  # functions and variables of the code's extensions
        self._sources: dict[ast.AST, tuple[list[str], dict[int, int]]] = {}  # inline C++ and CUDA, with their names
        self._titles: dict[ast.AST, str] = {}  # strings that may be names, with what they would belong to
        self._fixed: dict[str, set[str]] = {_PARAMETER: set(), _OWN: set(), _EXTENSION: set()}
        self._read_strings()
        self._read_attributes()
        self._read_calls()

    def _read_strings(self) -> None:
        for node, _ in self._nodes:
            if _makes_extension(node):
                self._titles |= dict.fromkeys(ast.walk(node), _EXTENSION)
                if last_name(node.func) == "load_inline":
                    named = {keyword.arg: keyword.value for keyword in node.keywords}
                    self._titles |= dict.fromkeys([*node.args[:1], named.get("name", node)], _TITLE)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if is_triton(node.value):
                    node.value = normalise_code(node.value)
                elif is_native(node.value):
                    self._sources[node] = read_native(node.value)
                elif node not in self._titles:
                    self._fix({node.value}, _PARAMETER, _OWN)
                    self._fix(_WORD.findall(node.value), _EXTENSION)
        for node in self._parts() if self._sources else ():
            if node in self._sources:
                self._sources[node] = self._sources[node][0], {}
        for tokens, names in self._sources.values():
            self._exports |= {tokens[at].strip('"') for at, block in names.items() if block == FILE}
            self._fix((token for at, token in enumerate(tokens) if at not in names), _EXTENSION)

    def _parts(self) -> Iterator[ast.AST]:
        """Yield what texts are put together from: f-strings, operators and methods, which may use a source's names."""
        for node, _ in self._nodes:
            if isinstance(node, ast.JoinedStr):
                yield from node.values
            elif isinstance(node, (ast.BinOp, ast.Attribute)):
                operands = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
                yield from map(self._names.origin, operands)

    def _read_attributes(self) -> None:
        for node, _ in self._nodes:
            if isinstance(node, ast.Attribute):
                kind = self._kind(node.value)
                if kind == _UNKNOWN:
                    self._fix({node.attr}, _OWN, _EXTENSION)
                elif kind == _OWN and isinstance(node.ctx, ast.Store):
                    self._attributes.setdefault(node.attr, []).append(None)

    def _read_calls(self) -> None:
        for node, scope in self._nodes:
            if isinstance(node, ast.Call) and node.keywords and self._callee(node, scope) == _UNKNOWN:
                self._fix((keyword.arg for keyword in node.keywords if keyword.arg), _PARAMETER, _OWN)

    def _fix(self, names: Iterable[str], *kinds: str) -> None:
        """Keep names as they are."""
        names = set(names)
        for kind in kinds:
            self._fixed[kind] |= names

    def _kind(self, node: ast.expr) -> str:
        """Return what an expression is whose attribute is read."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name):
            return _UNKNOWN
        binder, values = self._names.lookup(root.id, self._names.scope[root])
        if all(isinstance(value, str) for value in values):
            return _FOREIGN
        if root is node and ((binder, root.id) in self._receivers or isinstance(values[0], ast.ClassDef)):
            return _OWN
        return _EXTENSION if root is node and any(map(_makes_extension, values)) else _UNKNOWN

    def _callee(self, call: ast.Call, scope: ast.AST) -> Function | str:
        """Return the code's own function or class initialiser that a call calls; _FOREIGN or _UNKNOWN otherwise."""
        callee = call.func.value if isinstance(call.func, ast.Subscript) else call.func  # kernel[grid](...)
        values: list[Any] = [callee]
        if isinstance(callee, ast.Name):
            values = self._names.lookup(callee.id, scope)[1]
        elif isinstance(callee, ast.Attribute) and callee.attr not in self._attributes:
            return _FOREIGN
        elif isinstance(callee, ast.Attribute) and self._kind(callee.value) == _OWN:
            values = self._attributes[callee.attr]
        if all(isinstance(value, str) for value in values):
            return _FOREIGN
        if len(values) == 1 and isinstance(values[0], ast.ClassDef):
            binder, initialisers = self._names.lookup("__init__", values[0])
            values = initialisers if binder is values[0] else [None]
        return values[0] if len(values) == 1 and isinstance(values[0], FUNCTIONS) else _UNKNOWN

    def changes(self) -> Iterator[tuple[ast.AST, str, Any]]:
        """Yield (node, field, value) of all that has another name, or no more name, in the numbered tree."""
        for node, scope in self._nodes:
            match node:
                case ast.Attribute():
                    yield node, "attr", self._attribute(self._kind(node.value), node.attr)
                case ast.Call():
                    callee = self._callee(node, scope) if node.keywords else _UNKNOWN
                    for keyword in node.keywords:
                        if keyword.arg and not isinstance(callee, str) and keyword.arg in parameters(callee):
                            yield keyword, "arg", self._variable(keyword.arg, callee)
                case ast.Global() | ast.Nonlocal():
                    yield node, "names", [self._variable(name, scope) for name in node.names]
                case ast.Import() | ast.ImportFrom():
                    for alias in node.names:
                        name = _name_of(alias)
                        yield alias, "asname", None if self._import(name, scope) else self._variable(name, scope)
                case ast.Constant() if node in self._sources:
                    yield node, "value", self._source(node)
                case ast.Constant(value=str(text)) if node in self._titles:
                    yield node, "value", self._attribute(self._titles[node], text)
                case _ if type(node) in _FIELDS and (name := getattr(node, _FIELDS[type(node)])):
                    yield node, _FIELDS[type(node)], self._variable(name, scope)

    def is_written_out(self, node: ast.stmt) -> bool:
        """Return whether a statement of the module only imports names whose every use is written out."""
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            return False
        return all(alias.name != "*" and self._import(_name_of(alias), self._names.tree) for alias in node.names)

    def _import(self, name: str, scope: ast.AST) -> str | None:
        """Return the dotted name of what is only ever imported under this name, always the same."""
        values = self._names.lookup(name, scope)[1]
        return values[0] if len(set(values)) == 1 and isinstance(values[0], str) else None

    def _variable(self, name: str, scope: ast.AST) -> str:
        binder, _ = self._names.lookup(name, scope)
        if binder is None or (binder is self._names.tree and name in _PUBLIC):
            return name
        if isinstance(binder, ast.ClassDef):
            return self._attribute(_OWN, name)
        if isinstance(binder, FUNCTIONS) and name in self._fixed[_PARAMETER] and name in parameters(binder):
            return name
        return self._import(name, scope) or self._number(binder, name)

    def _attribute(self, kind: str, name: str) -> str:
        own = {_OWN: self._attributes, _EXTENSION: self._exports, _TITLE: (name,)}.get(kind, ())
        is_public = kind == _OWN and (name in _PUBLIC or name.startswith("__"))
        is_fixed = is_public or name in self._fixed.get(kind, ())
        return self._number(kind, name) if name in own and not is_fixed else name

    def _source(self, node: ast.Constant) -> str:
        tokens, names = self._sources[node]
        tokens = list(tokens)
        for at, block in names.items():
            name = tokens[at].strip('"')
            new_name = self._attribute(_EXTENSION, name) if block == FILE else self._number((node, block), name)
            tokens[at] = tokens[at].replace(name, new_name)
        return " ".join(tokens)

    def _number(self, owner: object, name: str) -> str:
        return self._numbers.setdefault((owner, name), f"§{len(self._numbers)}")


def _makes_extension(node: Any) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and last_name(node.func) in _COMPILERS


def _name_of(alias: ast.alias) -> str:
    """Return the name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]
