"""What settings may be: bounds of numbers, names to choose from. A number without bounds is finite and not negative.

The end of a setting's name is its unit: durations, amounts of memory and threads are at most what the platform takes.
Other whole numbers count what a list in memory may have to hold, and are at most what fits there.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
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
        return " and ".join(f"{words} {limit:.16g}" for words, limit in parts if limit is not None)

    def hold(self, value: float) -> bool:
        """Return whether `value` is finite and within the bounds."""
        return (
            _is_finite(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
        )


UNDECLARED = Bounds(least=0)
# Bits of a whole number without its sign: what PyTorch and Arrow hold.
_BITS = 63
# Most seconds of a duration, 146 years: half of what Python's locks wait for, 63 bits of nanoseconds. A deadline, the
# sum of clock and duration, is held in as many bits: torch.distributed gives up at once where it exceeds them.
_LONGEST_S = int(threading.TIMEOUT_MAX) // 2
# Most bytes of an amount of memory: half of what a whole number counts, since a limit is added to what is in use.
_MOST_BYTES = 2 ** (_BITS - 1) - 1
# Most threads: the cores that Linux knows on one machine (NR_CPUS of x86-64). Where 10,000 threads of PyTorch computed,
# 16,384 did not start, and 100,000 crashed the process.
_MOST_THREADS = 8192
# Most of what is counted without a unit. Measured: 2^24 islands took 1.4 GiB and 8 s, so 2^31 would take 180 GiB, and
# 2,000,000 completions of a step 2.2 GiB in the engine's process. Policies have contexts of up to 10,485,760 tokens.
_MOST_COUNTED = 1 << 24
# The most that a setting may be which declares none, by the end of its name. No list grows with the limits that are
# tokens, nor with a seed.
_UNITS = {
    "minutes": _LONGEST_S // 60,
    "_s": _LONGEST_S,
    "_ms": _LONGEST_S * 10**3,
    "_us": _LONGEST_S * 10**6,
    "_kib": _MOST_BYTES >> 10,
    "_mib": _MOST_BYTES >> 20,
    "_gib": _MOST_BYTES >> 30,
    "threads": _MOST_THREADS,
    "tokens": None,
    "seed": None,
}
_METADATA, _CHOICES = "bounds", "choices"


def bounded(
    default: float | None, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> Any:
    """Declare a dataclass field with a default and the bounds of its value."""
    return dataclasses.field(default=default, metadata={_METADATA: Bounds(least, above, most)})


def declared_bounds(field: dataclasses.Field[Any]) -> Bounds:
    """Return the bounds that a field declares, or those of every number."""
    bounds: Bounds = field.metadata.get(_METADATA, UNDECLARED)
    return bounds


# Asked for every field each time that a configuration is checked; a field never changes.
@cache
def bounds_of(field: dataclasses.Field[Any]) -> Bounds:
    """Return the bounds of a field. Where it declares no `most`, the unit at the end of its name sets that, or its type
    if it has none.
    """
    bounds = declared_bounds(field)
    counted = _MOST_COUNTED if re.search(r"\bint\b", str(field.type)) else None
    most = next((most for unit, most in _UNITS.items() if field.name.endswith(unit)), counted)
    return bounds if bounds.most is not None else dataclasses.replace(bounds, most=most)


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
            conditions = ["" if _is_finite(value) else "a finite number", str(bounds)]
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


def _is_finite(value: float) -> bool:
    """Return whether a number is neither infinite nor no number; whole ones may be beyond what a float holds."""
    return -math.inf < value < math.inf
