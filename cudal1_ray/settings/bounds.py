"""What settings may be: bounds of numbers, names to choose from. A number without bounds is finite and not negative."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudal1_ray.errors import UserError


@dataclass(frozen=True)
class Bounds:
    """The values that a number may take: at least `least`, above `above`, at most `most`; None does not bound."""

    least: float | None = None
    above: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        parts = [("at least", self.least), ("above", self.above), ("at most", self.most)]
        return " and ".join(f"{words} {limit:g}" for words, limit in parts if limit is not None)

    def hold(self, value: float) -> bool:
        """Return whether `value` is finite and within the bounds."""
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
        )


UNDECLARED = Bounds(least=0)
# Bits of a whole number without its sign: what PyTorch and Arrow hold.
_BITS = 63
_METADATA, _CHOICES = "bounds", "choices"


def bounded(
    default: float | None, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> Any:
    """Declare a dataclass field with a default and the bounds of its value."""
    return dataclasses.field(default=default, metadata={_METADATA: Bounds(least, above, most)})


def bounds_of(field: dataclasses.Field[Any]) -> Bounds:
    """Return the bounds that a field declares, or those of every number."""
    return field.metadata.get(_METADATA, UNDECLARED)


def one_of(*names: str) -> Any:
    """Declare a dataclass field whose value is one of `names`, the first by default."""
    return dataclasses.field(default=names[0], metadata={_CHOICES: names})


def several_of(*names: str, or_else: Sequence[str] = ()) -> Any:
    """Declare a dataclass field whose value is a list of `names`, all of them by default; it may hold `or_else` too."""
    return dataclasses.field(default_factory=lambda: list(names), metadata={_CHOICES: (*names, *or_else)})


def choices_of(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the names that a field may take, or the items of its list; () where it declares none."""
    return field.metadata.get(_CHOICES, ())


def check_values(config: Any, prefix: str = "") -> None:
    """Check every number, home folder and declared choice of a configuration, of nested sections and lists too.

    Raises:
        UserError: naming the key, its value and what it takes.
    """
    for field, key, value in _values(config, prefix):
        bounds, choices = bounds_of(field), choices_of(field)
        if _is_number(value) and not bounds.hold(value):
            text = f"{value:g}" if isinstance(value, float) else value
            conditions = ["" if math.isfinite(value) else "a finite number", str(bounds)]
            raise UserError(f"{key}={text}: must be {', '.join(filter(None, conditions))}")
        if isinstance(value, int) and value.bit_length() > _BITS:
            raise UserError(f"{key}={value}: must be a whole number of at most {_BITS} bits")
        if isinstance(value, str) and value.startswith("~") and os.path.expanduser(value).startswith("~"):
            raise UserError(f"{key}={value}: there is no such home folder; write the path in full")
        if choices and value not in choices:
            names = ", ".join(name or "empty" for name in choices)
            raise UserError(f"{key}={value}: must be one of {names}")


def _values(config: Any, prefix: str) -> Iterator[tuple[dataclasses.Field[Any], str, Any]]:
    for field in dataclasses.fields(config):
        value, key = getattr(config, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _values(value, f"{key}.")
        elif isinstance(value, Iterable) and not isinstance(value, str):
            yield from ((field, key, item) for item in value)
        else:
            yield field, key, value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
