"""The speed of a core at this moment.

Cores of a virtual machine are often halves of real ones: work on the other half slows everything here by a third, for
some milliseconds or seconds at a time. On a GPU a short call is mostly its launch, so such a change between two batches
looks like a speedup of 1.5. The referee measures the pace with a loop of its own, on the core that launches, and does
not compare times that it takes from outside if they ran at different paces.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median_low

_TURNS = range(1500)
# Ratio of two paces above which they are different; the same one is seen within some percent.
_EVEN = 1.1


def pace() -> float:
    """Return the seconds of a fixed loop on this core, the best of three: the first finds cold caches."""
    best = 1.0
    for _ in range(3):
        start = time.perf_counter()
        for _ in _TURNS:
            pass
        best = min(best, time.perf_counter() - start)
    return best


def even_pairs(paces: list[list[float]]) -> list[int]:
    """Return the numbers of the pairs that ran at one pace, and at least the more even half of all. `paces`: those seen
    before and after each pair's batches.
    """
    uneven = [max(around) / min(around) for around in paces]
    limit = max(_EVEN, median_low(uneven))
    return [number for number, ratio in enumerate(uneven) if ratio <= limit]


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Keep this thread, not those that it started, on `core`; change nothing for -1, or where that is not allowed."""
    before = os.sched_getaffinity(0)
    if core >= 0:
        move_to(core)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)


def move_to(core: int) -> None:
    """Run this thread on that core from here on, where that is allowed."""
    with suppress(OSError):
        os.sched_setaffinity(0, {core})


def fastest_core(cores: set[int], rounds: int = 40) -> int:
    """Return the core of `cores` that ran fastest most of the time while all of them were tried in turn."""
    paces: dict[int, list[float]] = {core: [] for core in cores}
    for _ in range(rounds):
        for core in cores:
            with on_core(core):
                paces[core].append(pace())
    return min(paces, key=lambda core: sorted(paces[core])[(3 * rounds) // 4])
