"""The keys of a configuration: path, type, default, bounds, and the explanation that stands with the field.

A field is explained by the comment directly above it and by the comment at the end of its line, a section by the
docstring of its class.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import io
import tokenize
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cudal1_ray.settings.bounds import choices_of, declared_bounds

_DIRECTIVES = ("noqa", "fmt:", "type:", "pragma:")


@dataclass(frozen=True)
class Key:
    """One setting. `kind` is its type as a user reads it, `bounds` those of a number, or its names, else ""."""

    path: str
    kind: str
    default: Any
    text: str
    bounds: str

    @property
    def takes_text(self) -> bool:
        """Return whether the value is a text, which is then taken as it is written."""
        return self.kind.split(" or ")[0] == "text"

    @property
    def takes_texts(self) -> bool:
        """Return whether the value is a list of texts, each taken as it is written."""
        return self.kind == "list of texts"

    @property
    def noun(self) -> str:
        """Return the type as the object of a sentence: "must be a whole number"."""
        if self.takes_list:
            return f"a {self.kind} in brackets, [...]"
        return self.kind if self.kind.startswith(("text", "true", "one of")) else f"a {self.kind}"

    @property
    def takes_list(self) -> bool:
        return self.kind.startswith("list")


@dataclass(frozen=True)
class Section:
    """A group of settings. `path` is "" for the whole configuration."""

    path: str
    text: str


@cache
def find_keys(schema: type) -> Mapping[str, Key | Section]:
    """Return every section and every setting below a schema by its dotted path, in the order of declaration."""
    return types.MappingProxyType({entry.path: entry for entry in _walk(schema, "", "")})


def _walk(schema: type, prefix: str, beside: str) -> Iterator[Key | Section]:
    yield Section(prefix.rstrip("."), " ".join(filter(None, (beside, _summary(schema)))))
    hints, texts = typing.get_type_hints(schema), section_texts(schema)
    for field in dataclasses.fields(schema):
        path, hint = f"{prefix}{field.name}", hints[field.name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            yield from _walk(hint, f"{path}.", texts.get(field.name, ""))
            continue
        kind = _kind(hint)
        number = kind.startswith(("whole number", "number"))
        choices = ", ".join(name or '""' for name in choices_of(field))
        bounds = str(declared_bounds(field)) if number else f"one of {choices}" if choices else ""
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        yield Key(path, kind, default, texts.get(field.name, ""), bounds)


@cache
def section_texts(schema: type) -> dict[str, str]:
    """Return the explanation of each field of a class, inherited fields included; empty where its source is
    not at hand.
    """
    inherited: dict[str, str] = {}
    for base in schema.__bases__:
        if dataclasses.is_dataclass(base):
            inherited |= section_texts(base)
    try:
        source = Path(inspect.getfile(schema)).read_text(encoding="utf-8")
    except (OSError, TypeError):
        return inherited
    comments, own_line = _comments(source)
    (definition,) = (n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == schema.__name__)
    texts = dict(inherited)
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines: list[str] = []
            line = node.lineno - 1
            while line in own_line:
                lines.insert(0, comments[line])
                line -= 1
            lines.append(comments.get(node.end_lineno or node.lineno, ""))
            texts[node.target.id] = " ".join(filter(None, lines))
    return texts


def _comments(source: str) -> tuple[dict[int, str], set[int]]:
    """Return comments by line number, and the lines that hold a comment and nothing else."""
    comments, own_line = {}, set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("# ").rstrip()
            if not text.startswith(_DIRECTIVES):
                comments[token.start[0]] = text
                if not token.line[: token.start[1]].strip():
                    own_line.add(token.start[0])
    return comments, own_line


def _summary(schema: type) -> str:
    """Return the first paragraph of a class's own docstring on one line."""
    text = inspect.cleandoc(schema.__doc__ or "")
    if text.startswith(f"{schema.__name__}("):  # made by @dataclass for a class without one
        return ""
    return " ".join(text.split("\n\n")[0].split())


def _kind(hint: Any) -> str:
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join(_kind(part) for part in typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return f"one of {', '.join(member.name for member in hint)}"
    if typing.get_origin(hint) is list:
        return f"list of {_kind(typing.get_args(hint)[0])}s"
    return names.get(hint, getattr(hint, "__name__", str(hint)))
