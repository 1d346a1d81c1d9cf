"""Choosing the exemplars of a prompt: strategies by name, and the record of what was chosen with what
probability.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

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
    """Make a strategy selectable by `exemplars.strategy=<name>`. Raises ValueError when the name is taken."""
    if _strategies.setdefault(name, strategy) is not strategy:
        raise ValueError(f"there is already an exemplar strategy named {name!r}")


def strategy_names() -> tuple[str, ...]:
    """Return the names that `exemplars.strategy` accepts."""
    return tuple(sorted(_strategies))


def select(buffer: ExemplarBuffer, problem_id: str, config: ExemplarsConfig, rng: np.random.Generator) -> Selection:
    """Draw up to `config.count` exemplars of a problem by `config.strategy`; fewer when there are fewer.

    With `config.headroom` above 1 only those are drawn that are slower than the fastest by this factor or more.

    The same buffer, configuration and generator state give the same selection.

    Raises:
        UserError: for a strategy that does not exist or a field that cannot work.
    """
    config.validate()
    view = buffer.view(problem_id)
    if config.headroom > 1.0 and len(view):
        view = dataclasses.replace(view, limit=float(view.speedup.max()) / config.headroom)
    draw = _strategies[config.strategy](view, config.count, rng, config)
    order = list(range(len(draw.positions)))
    if config.order != "drawn":
        order = sorted(order, key=lambda i: view.speedup[draw.positions[i]])
        if config.order == "descending":
            order.reverse()
    return Selection(
        buffer.at(problem_id, [draw.positions[i] for i in order]),
        tuple(draw.probabilities[i] for i in order),
        config.strategy,
    )
