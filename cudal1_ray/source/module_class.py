"""A module's class in a syntax tree: which it is, what its methods take, and its name in the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cudal1_ray.errors import UserError
from cudal1_ray.source.text import line_starts

_CLASS = re.compile(rb"class(?:[ \t\f]|\\\r?\n)+")


@dataclass(frozen=True)
class ModuleClass:
    """One class, with those of the same file that it inherits from. known: whether all its bases are in the file
    (or are `nn.Module`), so that a method that is not found is not there.
    """

    name: str
    line: tuple[ast.ClassDef, ...]  # itself, then its bases
    known: bool

    def method(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the method of this name, inherited ones of the same file included; None where it is in no class."""
        for definition in self.line:
            for statement in definition.body:
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == name:
                    return statement
        return None

    def in_order(self, method: str, positional: Sequence[str], named: Mapping[str, str], what: str) -> list[str]:
        """Return arguments by position, named ones put where they belong, gaps filled with the defaults.

        Raises:
            UserError: when the method does not take them, as far as its signature shows.
        """
        definition = self.method(method)
        if definition is None:
            return self._unseen(method, positional, named, what)
        arguments = definition.args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][1:]  # without self
        defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
        takes = f"{self.name}.{method} takes {_listed(names, defaults, arguments)}"
        if len(positional) > len(names) and arguments.vararg is None:
            raise UserError(f"{what}: {len(positional)} given, but {takes}")
        values = dict(zip(names, positional, strict=False))
        for name, value in named.items():
            if name not in names or name in values:
                problem = "is there already by position" if name in values else "is none of them"
                raise UserError(f"{what}: {takes}; {name!r} {problem}, and what has no position cannot be given")
            values[name] = value
        for only, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if default is None:
                raise UserError(f"{what}: {takes}, where {only.arg!r} has no position; give it a default or a position")
        for name in names:
            if name not in values and name not in defaults:
                raise UserError(f"{what}: {takes}; {name!r} is missing")
        last = max((i for i, name in enumerate(names) if name in values), default=-1)
        filled = [values.get(name) or _default(defaults[name], name, what) for name in names[: last + 1]]
        return [*filled, *positional[len(names) :]]

    def _unseen(self, method: str, positional: Sequence[str], named: Mapping[str, str], what: str) -> list[str]:
        if self.known and method == "forward":
            raise UserError(f"{self.name} has no forward(); which class is meant?")
        if named:
            raise UserError(f"{what}: {self.name}.{method} is not in the source, so its arguments go by position")
        if self.known and positional:
            raise UserError(f"{what}: {self.name} has no __init__ of its own, so it takes none")
        return list(positional)


def find_class(tree: ast.Module, name: str, origin: str) -> ModuleClass:
    """Return the class of that name.

    Without a name it is `Model`, the only module, or the only one that no other module uses.

    Raises:
        UserError: when there is none, or more than one could be meant.
    """
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name:
        if name not in classes:
            choice = f"there are {', '.join(classes)}" if classes else "there is none"
            raise UserError(f"{origin}: no top-level class {name!r}; {choice}")
        return class_with_bases(classes[name], classes)
    modules = [module for node in classes.values() if _is_module(module := class_with_bases(node, classes))]
    if not modules:
        raise UserError(f"{origin}: no top-level class that is an nn.Module")
    if "Model" in [module.name for module in modules]:
        return class_with_bases(classes["Model"], classes)
    used = {
        node.id
        for module in modules
        for node in ast.walk(classes[module.name])
        if isinstance(node, ast.Name) and node.id != module.name
    }
    outer = [module for module in modules if module.name not in used]
    if len(outer) != 1:
        names = ", ".join(module.name for module in outer or modules)
        raise UserError(f"{origin}: which class is meant: {names}? Choose one (class_name, or --class)")
    return outer[0]


def class_with_bases(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> ModuleClass:
    """Return a class with those of its bases that are among `classes`, by name, nearest first."""
    line, waiting, complete = [], [node], True
    while waiting:
        current = waiting.pop(0)
        if current in line:
            continue
        line.append(current)
        for base in current.bases:
            inside = classes.get(base.id) if isinstance(base, ast.Name) else None
            if inside is not None and inside is not current:
                waiting.append(inside)
            elif _dotted(base).split(".")[-1] not in ("Module", "object", "ABC"):
                complete = False
    return ModuleClass(node.name, tuple(line), complete)


def _is_module(module: ModuleClass) -> bool:
    bases = [_dotted(base) for node in module.line for base in node.bases]
    return any(base.split(".")[-1] == "Module" or base.startswith(("nn.", "torch.nn.")) for base in bases)


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""


def rename_class(source: str, tree: ast.Module, old: str, new: str, origin: str) -> str:
    """Return the text with one class renamed wherever it is named; comments and layout stay.

    Raises:
        UserError: when either name means something else, too.
    """
    if old == new:
        return source
    definition = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == old)
    bound = [name for name in _bindings(tree) if name in (old, new)]
    if new in bound or bound.count(old) != 1:
        both = new if new in bound else old
        raise UserError(f"{origin}: {both!r} means something else in it, too; call the class {new} yourself")
    text, old_bytes = source.encode(), old.encode()
    starts = line_starts(text)
    places = {
        starts[node.lineno - 1] + node.col_offset
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == old
    }
    keyword = _CLASS.match(text, starts[definition.lineno - 1] + definition.col_offset)
    places.add(keyword.end() if keyword else -1)
    for place in sorted(places, reverse=True):
        if (
            place < 0 or text[place : place + len(old_bytes)] != old_bytes
        ):  # in an f-string: its places are not to be had
            raise UserError(f"{origin}: cannot call {old} {new} everywhere; do it yourself")
        text = text[:place] + new.encode() + text[place + len(old_bytes) :]
    return text.decode()


def _bindings(tree: ast.Module) -> Iterator[str]:
    """Yield every name that is bound anywhere in the file, once for each binding."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.split(".")[0]
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def _listed(names: Sequence[str], defaults: Mapping[str, ast.expr], arguments: ast.arguments) -> str:
    texts = [f"{name}=..." if name in defaults else name for name in names]
    if arguments.vararg is not None:
        texts.append(f"*{arguments.vararg.arg}")
    texts += [argument.arg for argument in arguments.kwonlyargs]
    return f"({', '.join(texts)})" if texts else "nothing"


def _default(value: ast.expr, name: str, what: str) -> str:
    try:
        ast.literal_eval(value)
        return ast.unparse(value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise UserError(f"{what}: give {name!r}, too: its default is no plain value") from None
