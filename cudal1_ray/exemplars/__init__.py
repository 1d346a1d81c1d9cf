"""Exemplars: the replay buffer of (code, speedup) and the rules that pick which of them a prompt shows.

`ExemplarBuffer` keeps every evaluated candidate; `select` draws a `Selection` from it by a named strategy.
Names are resolved on first use, so that importing the configuration costs no pyarrow and no numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudal1_ray.exemplars.buffer import ExemplarBuffer
    from cudal1_ray.exemplars.config import ExemplarsConfig
    from cudal1_ray.exemplars.exemplar import Exemplar, exemplar_id
    from cudal1_ray.exemplars.selection import Selection, prepare, register_strategy, select, strategy_names
    from cudal1_ray.exemplars.view import Draw, ProblemView

_HOME = {
    "Exemplar": "exemplar",
    "exemplar_id": "exemplar",
    "ExemplarBuffer": "buffer",
    "ExemplarsConfig": "config",
    "Selection": "selection",
    "select": "selection",
    "prepare": "selection",
    "register_strategy": "selection",
    "strategy_names": "selection",
    "Draw": "view",
    "ProblemView": "view",
}

__all__ = [
    "Draw",
    "Exemplar",
    "ExemplarBuffer",
    "ExemplarsConfig",
    "ProblemView",
    "Selection",
    "exemplar_id",
    "prepare",
    "register_strategy",
    "select",
    "strategy_names",
]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
