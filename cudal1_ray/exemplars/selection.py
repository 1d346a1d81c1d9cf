"""Choosing the exemplars of a prompt: strategies by name, and the record of what was chosen with what
probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cudal1_ray.errors import UserError
from cudal1_ray.exemplars.buffer import ExemplarBuffer
from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.exemplar import Exemplar
from cudal1_ray.exemplars.strategies import BUNDLED
from cudal1_ray.exemplars.view import Draw, ProblemView

Strategy = Callable[[ProblemView, int, np.random.Generator, ExemplarsConfig], Draw]

_strategies: dict[str, Strategy] = dict(BUNDLED)


@dataclass(frozen=True)
class Selection:
    """Exemplars in the order a prompt shows them; for each, the probability its draw had of taking it."""

    exemplars: tuple[Exemplar, ...] = ()
    probabilities: tuple[float, ...] = ()
    strategy: str = "none"


def register_strategy(name: str, strategy: Strategy) -> None:
    """Makes a strategy selectable by `exemplars.strategy=<name>`. Raises ValueError when the name is
    taken.
    """
    if _strategies.setdefault(name, strategy) is not strategy:
        raise ValueError(f"there is already an exemplar strategy named {name!r}")


def strategy_names() -> tuple[str, ...]:
    """The names `select` accepts."""
    return tuple(sorted(_strategies))


def select(buffer: ExemplarBuffer, problem_id: str, config: ExemplarsConfig, rng: np.random.Generator) -> Selection:
    """Draws up to `config.count` exemplars of a problem by `config.strategy`; fewer when there are fewer.

    The same buffer, configuration and generator state give the same selection. Raises UserError for a
    strategy that does not exist or a field that cannot work.
    """
    config.validate()
    strategy = _strategies.get(config.strategy)
    if strategy is None:
        raise UserError(f"exemplars.strategy is {config.strategy!r}: use one of {', '.join(strategy_names())}")
    view = buffer.view(problem_id)
    draw = strategy(view, config.count, rng, config)
    order = range(len(draw.positions))
    if config.order != "drawn":
        order = sorted(order, key=lambda i: view.speedup[draw.positions[i]])
        if config.order == "descending":
            order.reverse()
    return Selection(
        buffer.at(problem_id, [draw.positions[i] for i in order]),
        tuple(draw.probabilities[i] for i in order),
        config.strategy,
    )
