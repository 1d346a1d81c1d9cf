"""What a model is constructed with."""

from __future__ import annotations

from typing import Any


def constructor_arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """(positional arguments, keywords) of what a problem's `get_init_inputs()` gives: a sequence, as in KernelBench; a
    dictionary of keywords; or both in a sequence of two, as in KernelBook.
    """
    if _names(given):
        return [], dict(given)
    given = list(given)
    if len(given) == 2 and isinstance(given[0], (list, tuple)) and _names(given[1]):
        return list(given[0]), dict(given[1])
    return given, {}


def _names(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) and name.isidentifier() for name in value)
