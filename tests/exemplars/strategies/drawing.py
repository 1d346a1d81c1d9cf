"""What the tests of strategies share: hand-made views, many draws, and a comparison of the two."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from cudal1_ray.exemplars import ExemplarsConfig, ProblemView
from cudal1_ray.exemplars.columns import MEASURED, ProblemColumns
from cudal1_ray.exemplars.strategies import BUNDLED

DRAWS = 5_000


def view(speedups, steps=None, parents=(), reasons=(), **measured) -> ProblemView:
    """Return a view of exemplars with these speedups; `measured` may have length, operations and sketch, else 0."""
    n = len(speedups)
    ids = [f"{i:020x}" for i in range(n)]
    parents = parents or [()] * n
    columns = ProblemColumns("p")
    columns.extend(
        ids,
        range(n),
        dict.fromkeys(MEASURED, [0] * n) | {"speedup": speedups, "step": steps or range(n)} | measured,
        [ids[parent] for each in parents for parent in each],
        [len(each) for each in parents],
        reasons or [()] * n,
    )
    return columns.view()


def drawn(name, view, count, config=None, draws=DRAWS, seed=3):
    """Count ordered draws, after checking that equal draws report equal probabilities."""
    rng, config = np.random.default_rng(seed), config or ExemplarsConfig()
    counts, reported = Counter(), {}
    for _ in range(draws):
        draw = BUNDLED[name](view, count, rng, config)
        assert len(draw.positions) == len(draw.probabilities) == len(set(draw.positions))
        counts[draw.positions] += 1
        assert reported.setdefault(draw.positions, draw.probabilities) == draw.probabilities
    return counts, reported


def assert_drawn_as(counts, expected):
    """Assert by a chi-square test that ordered draws follow their probabilities.

    No right program fails at its level with the tests' seeds.
    """
    total = sum(counts.values())
    assert sum(expected.values()) == pytest.approx(1.0)
    assert set(counts) <= {key for key, p in expected.items() if p > 0}
    cells = [(counts[key], p * total) for key, p in expected.items() if p > 0]
    rare = [cell for cell in cells if cell[1] < 5]
    cells = [cell for cell in cells if cell[1] >= 5]
    if rare:
        cells.append((sum(o for o, _ in rare), sum(e for _, e in rare)))
    statistic = sum((observed - e) ** 2 / e for observed, e in cells)
    freedom = len(cells) - 1
    assert statistic < freedom + 4 * np.sqrt(2 * max(freedom, 1)) + 4, (statistic, freedom)


def assert_follows(name, view, count, config, chances):
    """Assert that draws, and what they report, are those of `chances(taken)`: {position: P} of the draw after these."""
    expected = orders(chances, count)
    counts, reported = drawn(name, view, count, config)
    assert_drawn_as(counts, {order: float(np.prod(p)) for order, p in expected.items()})
    for order, probabilities in reported.items():
        assert probabilities == pytest.approx(expected[order]), order


def orders(chances, count, taken=(), before=()):
    """Return {ordered draw: the probability of each of its steps}, by going through all of them."""
    here = {position: p for position, p in chances(taken).items() if p > 0} if len(taken) < count else {}
    if not here:
        return {taken: before}
    assert sum(here.values()) == pytest.approx(1.0)
    return {
        order: steps
        for position, p in here.items()
        for order, steps in orders(chances, count, (*taken, position), (*before, p)).items()
    }


def among_left(weights):
    """Return chances in proportion to weights {position: weight}, renormalised over those that are left."""

    def chances(taken):
        left = {position: w for position, w in weights.items() if position not in taken}
        return {position: w / sum(left.values()) for position, w in left.items()}

    return chances
