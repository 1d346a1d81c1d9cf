"""Calls whose arguments are made when their turn comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_len = len  # captured before any candidate


class LateCalls:
    """Arguments of calls, made when each call's turn comes; with `ready` made before, and then once more, unused."""

    def __init__(self, makers: list[Callable[[], list[Any]]], *, ready: bool = False) -> None:
        self._makers, self._ready = makers, ready
        self._made: list[list[Any]] = [make() for make in makers] if ready else []

    def __getitem__(self, number: Any) -> Any:
        return self._made[number]

    def __len__(self) -> int:
        return _len(self._makers)

    def __iter__(self) -> Iterator[list[Any]]:
        return map(self.turn, range(_len(self._makers)))

    def turn(self, number: int) -> list[Any]:
        """Return the arguments of call `number`, whose turn has come; once for each call, in order."""
        arguments = self._makers[number]()
        if not self._ready:
            self._made.append(arguments)
        return self._made[number]
