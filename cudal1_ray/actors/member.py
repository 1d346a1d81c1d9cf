"""What every actor of a fleet can do: answer a probe, run a call, and name its process.

Kept apart from `fleet.py` because actors import this module, and only the driver needs RLlib.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cudal1_ray.plugins import load_plugins_of_driver


class ActorsLost(RuntimeError):
    """Actors died or hung, and their owner cannot go on; the message is one line with the cause."""


@dataclass(frozen=True)
class Timed:
    """A result together with the seconds its actor was busy making it."""

    value: Any
    busy_s: float


class FleetMember:
    """Base of the actor classes. RLlib's actor manager calls `ping` and `apply`, and needs no more."""

    def __new__(cls, *args: Any, **kwargs: Any) -> FleetMember:
        """Return the actor's object, after the driver's plugins were imported in its process."""
        load_plugins_of_driver()
        return super().__new__(cls)

    def ping(self) -> str:
        return "pong"

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return func(self, *args, **kwargs)

    def close(self) -> None:
        """Tidy up, before the actor is killed: for members with processes or files of their own."""

    def pid(self) -> int:
        """Return the process id on its node; tests of faults kill it."""
        return os.getpid()


@dataclass(frozen=True)
class MethodCall:
    """`method(*args)` of an actor, timed. A class, not a closure: it is pickled by reference, so cheaply."""

    method: str
    args: tuple[Any, ...] = ()

    def __call__(self, actor: Any) -> Timed:
        started = time.perf_counter()
        value = getattr(actor, self.method)(*self.args)
        return Timed(value, time.perf_counter() - started)
