"""Exemplars: the replay buffer of (code, speedup) and the rules that pick which of them a prompt shows.

`ExemplarBuffer` keeps every evaluated candidate; `select` draws a `Selection` from it by a named strategy.
Names are resolved on first use, so that importing the configuration costs no pyarrow and no numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from cudal1_ray.exemplars.buffer import ExemplarBuffer
    from cudal1_ray.exemplars.config import ExemplarsConfig
    from cudal1_ray.exemplars.exemplar import Exemplar, exemplar_id
    from cudal1_ray.exemplars.selection import Selection, register_strategy, select, strategy_names
    from cudal1_ray.exemplars.view import Draw, ProblemView

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "buffer": ["ExemplarBuffer"],
        "config": ["ExemplarsConfig"],
        "exemplar": ["Exemplar", "exemplar_id"],
        "selection": ["Selection", "register_strategy", "select", "strategy_names"],
        "view": ["Draw", "ProblemView"],
    },
)
