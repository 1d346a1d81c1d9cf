"""What a file does only as a program of its own: under ``if __name__ == "__main__"``, and in functions for that alone.

No contestant runs it, and many a file carries a test of its own there, with switches and clocks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_ANY_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
# Who has these may call a function that is mentioned nowhere.
_REACH_ALL = {
    "globals", "locals", "vars", "dir", "eval", "exec", "getattr", "attrgetter", "inspect", "gc", "importlib",
    "modules", "__dict__", "__globals__", "__import__", "__builtins__",
}  # fmt: skip


def without_main(tree: ast.Module) -> ast.Module:
    """The tree without what only a program of its own would run; the same where the module's name may be another."""
    if "__name__" in _given_otherwise(tree):
        return tree
    kept, left = list[ast.stmt](), list[ast.stmt]()
    for statement in tree.body:
        if _asks_for_main(statement):
            left += statement.body
            kept += statement.orelse
        else:
            kept.append(statement)
    if not left:
        return tree
    fewer = _without_functions_of(left, kept)
    return ast.Module(kept if _REACH_ALL & _mentioned(fewer) else fewer, tree.type_ignores)


def _asks_for_main(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1):
        return False
    sides = [node.test.left, node.test.comparators[0]]
    names = [one.id for one in sides if isinstance(one, ast.Name)]
    values = [one.value for one in sides if isinstance(one, ast.Constant)]
    return isinstance(node.test.ops[0], ast.Eq) and (names, values) == (["__name__"], ["__main__"])


def _without_functions_of(left: list[ast.stmt], kept: list[ast.stmt]) -> list[ast.stmt]:
    """``kept`` without plain functions that ``left`` mentions, or one of those, and nothing else does."""
    while True:
        wanted = _mentioned(left)
        for function in kept:
            others = [one for one in kept if one is not function]
            if _is_plain(function) and function.name in wanted and function.name not in _mentioned(others):
                kept, left = others, [*left, function]
                break
        else:
            return kept


def _is_plain(node: ast.stmt) -> bool:
    """A function whose definition alone runs nothing, and that has no name by which Python itself calls it."""
    if not isinstance(node, _ANY_FUNCTION) or node.name.startswith("__"):
        return False
    told = [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
    return not any(isinstance(one, (ast.Call, ast.NamedExpr)) for part in told for one in ast.walk(part))


def _mentioned(statements: Iterable[ast.stmt]) -> set[str]:
    """Every name, also as an attribute, or inside a text that is used."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return {name for node in nodes if id(node) not in docstrings for name in _names_in(node)}


def _names_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Import):  # without another name its use says as much
        yield from (part for one in node.names if one.asname for part in (one.name, one.asname))
    elif isinstance(node, ast.ImportFrom):
        yield from (node.module or "").split(".")
        yield from (part for one in node.names for part in (one.name, one.asname or ""))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from node.value.replace(".", " ").replace("(", " ").split()


def _given_otherwise(tree: ast.Module) -> set[str]:
    """Names that are bound in a tree, or written in a text."""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {name for node in ast.walk(tree) if not isinstance(node, ast.Name) for name in _names_in(node)}
    return bound | {one for node in ast.walk(tree) if isinstance(node, ast.Global) for one in node.names}
