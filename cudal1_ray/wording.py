"""Words of messages that depend on a number."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s unless the number is 1: `1 round`, `2,000 rounds`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
