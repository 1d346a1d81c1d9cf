"""Bounds of numeric settings. A number without declared bounds is finite and not negative."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
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
_METADATA = "bounds"


def bounded(
    default: float | None, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> Any:
    """Declare a dataclass field with a default and the bounds of its value."""
    return dataclasses.field(default=default, metadata={_METADATA: Bounds(least, above, most)})


def bounds_of(field: dataclasses.Field[Any]) -> Bounds:
    """Return the bounds that a field declares, or those of every number."""
    return field.metadata.get(_METADATA, UNDECLARED)


def check_numbers(config: Any, prefix: str = "") -> None:
    """Check every number of a configuration, of nested sections and lists too.

    Raises:
        UserError: naming the key, its value and its bounds.
    """
    for key, value, bounds in _numbers(config, prefix):
        if not bounds.hold(value):
            text = f"{value:g}" if isinstance(value, float) else value
            raise UserError(f"{key}={text}: must be {bounds or 'a finite number'}")


def _numbers(config: Any, prefix: str) -> Iterator[tuple[str, float, Bounds]]:
    for field in dataclasses.fields(config):
        value, key = getattr(config, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _numbers(value, f"{key}.")
        elif isinstance(value, Iterable) and not isinstance(value, str):
            yield from ((key, item, bounds_of(field)) for item in value if _is_number(item))
        elif _is_number(value):
            yield key, value, bounds_of(field)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
