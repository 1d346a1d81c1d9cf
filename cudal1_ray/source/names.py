"""What the names of a candidate's source mean: imports and other aliases resolved, scope by scope.

Nothing is executed, so an answer is a best guess: a name that is bound to different things means nothing foreign.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from cudal1_ray.source.nodes import assignments

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_IMPORTERS = ("__import__", "builtins.__import__", "importlib.import_module")
_BUILTINS = frozenset(dir(builtins))
_Bound = str | ast.AST | None  # an import's dotted name, the expression assigned, or None for anything else


class Names:
    """Scopes of a tree. `nodes`: those of each module, class and function, inner scopes left out."""

    _SCOPES: tuple[type[ast.AST], ...] = (*FUNCTIONS, ast.ClassDef)

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.scope: dict[ast.AST, ast.AST] = {}
        self.nodes: dict[ast.AST, list[ast.AST]] = {tree: []}
        self.functions: list[Function] = []
        self.attribute_values: dict[str, list[ast.expr]] = {}  # attribute of self -> what is assigned to it
        self._bound: dict[tuple[ast.AST, str], list[_Bound]] = {}
        self._dotted: dict[ast.AST, str] = {}
        self._known: dict[tuple[ast.AST, str], str] = {}
        waiting: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
        bindings: list[tuple[ast.AST, str, _Bound]] = []
        outer: dict[tuple[ast.AST, str], ast.AST] = {}  # names that a scope binds in another
        placed: dict[ast.AST, ast.AST] = {}  # parts of an inner scope's node that belong to the outer
        while waiting:
            node, scope = waiting.pop()
            scope = placed.get(node, scope)
            self.scope[node] = scope
            self.nodes[scope].append(node)
            inner = scope
            if isinstance(node, self._SCOPES):
                inner = node
                self.nodes[node] = []
                placed |= dict.fromkeys(_evaluated_outside(node), scope)
            if isinstance(node, FUNCTIONS):
                self.functions.append(node)
                bindings += [(node, name, None) for name in parameters(node)]
            enclosing = scope
            while isinstance(node, ast.NamedExpr) and isinstance(enclosing, _COMPREHENSIONS):
                outer[enclosing, node.target.id] = self.scope[enclosing]
                enclosing = self.scope[enclosing]
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                target = tree if isinstance(node, ast.Global) else self.scope[scope]
                outer |= {(scope, name): target for name in node.names}
            bindings += [(scope, name, value) for name, value in _bindings(node)]
            self._keep(node)
            waiting += [(child, inner) for child in reversed(list(ast.iter_child_nodes(node)))]
        self.imported = {value.split(".")[0] for _, _, value in bindings if isinstance(value, str)}  # packages
        for scope, name, value in bindings:
            while (scope, name) in outer and scope is not tree:
                scope = outer[scope, name]
            self._bound.setdefault((scope, name), []).append(value)

    def _keep(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    if target.value.id == "self":
                        self.attribute_values.setdefault(target.attr, []).append(node.value)

    def binder(self, node: ast.Name) -> ast.AST | None:
        """Return the scope that binds this name where it stands; None for built-in names."""
        return self.binder_of(node.id, self.scope[node])

    def binder_of(self, name: str, scope: ast.AST) -> ast.AST | None:
        """Return the scope that binds what a name is in `scope`; None for built-in names."""
        start = scope
        while True:
            if (scope, name) in self._bound and (scope is start or not isinstance(scope, ast.ClassDef)):
                return scope
            if self.scope[scope] is scope:
                return None
            scope = self.scope[scope]

    def values(self, node: ast.AST) -> list[_Bound]:
        """Return what a name is bound to, anywhere in its scope; the node itself when it is no bound name."""
        if isinstance(node, ast.Name) and (scope := self.binder(node)) is not None:
            return self._bound[scope, node.id]
        return [node]

    def origin(self, node: ast.AST) -> ast.AST:
        """Return the expression behind a name that is bound once, through further such names."""
        for _ in range(8):
            values = self.values(node)
            if len(values) != 1 or values[0] is node or not isinstance(values[0], ast.expr):
                return node
            node = values[0]
        return node

    def name(self, node: ast.AST) -> str:
        """Return the dotted name of an expression, empty when it has none; `?` precedes a root that is only local."""
        if isinstance(node, ast.Name):
            scope = self.binder(node)
            return node.id if scope is None or node.id in ("self", "cls") else self._resolve(scope, node.id)
        if isinstance(node, ast.Attribute):
            if node not in self._dotted:
                self._dotted[node] = self._attribute_name(node)
            return self._dotted[node]
        return self._looked_up(node) if isinstance(node, ast.Call) and node.args else ""

    def _attribute_name(self, node: ast.Attribute) -> str:
        base = self.name(node.value)
        if base == "self" and isinstance(node.ctx, ast.Load) and node.attr in self.attribute_values:
            return self._attribute_value_name(node.attr)
        return f"{base}.{node.attr}" if base else ""

    def _looked_up(self, call: ast.Call) -> str:
        """Return `a.b` for `import_module("a.b")` and `getattr(a, "b")`, which mean the same."""
        function, last = self.name(call.func), call.args[-1]
        if not (isinstance(last, ast.Constant) and isinstance(last.value, str)):
            return ""
        if function in _IMPORTERS and len(call.args) == 1:
            return last.value
        base = self.name(call.args[0]) if function == "getattr" and len(call.args) == 2 else ""
        return f"{base}.{last.value}" if base else ""

    def _resolve(self, scope: ast.AST, name: str) -> str:
        if (scope, name) not in self._known:
            self._known[scope, name] = f"?{name}"  # until it is known, and for names that go round in a circle
            self._known[scope, name] = self._common(self._bound[scope, name], f"?{name}")
        return self._known[scope, name]

    def _attribute_value_name(self, attribute: str) -> str:
        key, otherwise = (self.tree, f"self.{attribute}"), f"self.{attribute}"
        if key not in self._known:
            self._known[key] = otherwise
            self._known[key] = self._common(self.attribute_values[attribute], otherwise)
        return self._known[key]

    def _common(self, values: list[_Bound] | list[ast.expr], otherwise: str) -> str:
        nodes: list[ast.AST | None] = []
        for value in values:
            if isinstance(value, str):
                return value
            nodes.append(value)
        names = {self.name(node) if node else "" for node in nodes if not isinstance(node, ast.Constant)}
        name = names.pop() if len(names) == 1 else ""
        return otherwise if not name or name[0] == "?" or name.split(".")[0] in ("self", "cls") else name


class ScopeNames(Names):
    """Names with a scope for each comprehension, as Python has it."""

    _SCOPES = (*Names._SCOPES, *_COMPREHENSIONS)

    def lookup(self, name: str, scope: ast.AST) -> tuple[ast.AST | None, list[_Bound]]:
        """Return the scope that binds what a name is in `scope`, and to what; (None, []) for built-in names."""
        binder = self.binder_of(name, scope)
        return binder, [] if binder is None else self._bound[binder, name]

    def members(self) -> dict[str, list[_Bound]]:
        """Return what classes bind outside their methods, those of all classes together."""
        members: dict[str, list[_Bound]] = {}
        for (scope, name), values in self._bound.items():
            if isinstance(scope, ast.ClassDef):
                members.setdefault(name, []).extend(values)
        return members


def parameters(function: Function) -> list[str]:
    """Return the names of all parameters, those by position first."""
    signature = function.args
    plain = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
    return [argument.arg for argument in [*plain, *(extra for extra in (signature.vararg, signature.kwarg) if extra)]]


def top_level_names(tree: ast.Module) -> set[str]:
    """Return the names that a module binds outside functions and classes, in an `if` or a `try` too."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return names


def free_names(tree: ast.Module) -> set[str]:
    """Return the names that a module uses and binds nowhere, built-in ones left out."""
    used: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.arg(arg=name):
                bound.add(name)
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.alias(name=name, asname=renamed):
                bound.add(renamed or name.partition(".")[0])
    return used - bound - _BUILTINS


def _evaluated_outside(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a function, class or comprehension that belong to the scope around it."""
    if isinstance(node, _COMPREHENSIONS):
        return [node.generators[0].iter]
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *node.keywords]
    assert isinstance(node, FUNCTIONS)
    annotations = [part.annotation for part in ast.walk(node.args) if isinstance(part, ast.arg)]
    parts = [*node.args.defaults, *node.args.kw_defaults, *annotations]
    parts += [] if isinstance(node, ast.Lambda) else [*node.decorator_list, node.returns]
    return [part for part in parts if part is not None]


def _bindings(node: ast.AST) -> Iterator[tuple[str, _Bound]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name, node
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name, None
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest, None
    direct = isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
    for target, value in assignments(node):
        for part in ast.walk(target):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id, value if direct and part is target else None
