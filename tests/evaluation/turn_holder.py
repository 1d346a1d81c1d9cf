"""A process that takes a turn and keeps it, in a module of its own, so that it starts without importing torch."""

from __future__ import annotations

from multiprocessing.synchronize import Event

from cudal1_ray.evaluation.sharing.turns import Turns

WAYS = {
    "measure": lambda turns: turns.alone(),
    "prepare": lambda turns: turns.beside_others(longest_s=600.0),
    "candidate": lambda turns: turns.candidate(),
    "alone": lambda turns: turns.candidate(without_others=True),
}


def hold(path: str, way: str, entered: Event, release: Event, trying: Event) -> None:
    """Take a turn of the file at `path` in one of `WAYS`, and keep it until `release` is set, for 300 s at most."""
    turns = Turns(path)
    trying.set()
    with WAYS[way](turns):
        entered.set()
        release.wait(300)
