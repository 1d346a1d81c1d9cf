"""Which of a GPU's batches count: none that another process delayed, and none of a slow core."""

from __future__ import annotations

import random
import statistics

import pytest

from cudal1_ray.evaluation.config import EvaluationConfig, TimingConfig
from cudal1_ray.evaluation.timing.clocks import Batch, Span
from cudal1_ray.evaluation.timing.steady import mostly_launches, select, undisturbed

CONFIG = EvaluationConfig(device="cuda", timing=TimingConfig(process_spread=0.0045, launch_spread_us=1.0))
NOTHING = Span(0.0, 0.0, 0.0)
CALLS = 16


def batch(call_s: float, beside_s: float) -> Batch:
    return Batch(CALLS, (call_s,) * CALLS, NOTHING, Span(CALLS * (call_s + beside_s), 0.0, 0.0), None, None)


def side(*kinds: tuple[int, float, float]) -> list[Batch]:
    return [batch(call_s, beside_s) for number, call_s, beside_s in kinds for _ in range(number)]


QUIET, DISTURBED = (60e-6, 75e-6), (19e-6, 800e-6)


def calls_of(selection) -> set[tuple[float, float]]:
    return {(ours.times[0], theirs.times[0]) for ours, theirs in zip(*selection.sides, strict=True)}


def test_batches_when_others_held_them_up_are_left_out_on_both_sides():
    references = side((10, *QUIET), (4, *DISTURBED), (4, *QUIET))
    candidates = side((14, 50e-6, 75e-6), (4, 20e-6, 900e-6))
    selection = select((references, candidates), CONFIG)
    assert selection.steady and len(selection.sides[0]) == 10
    assert calls_of(selection) == {(60e-6, 50e-6)}


def test_undisturbed_when_others_were_at_work_leaves_their_batches_out():
    assert len(undisturbed(side((6, *QUIET), (4, *DISTURBED)))) == 6 and not undisturbed([])


def test_batches_when_launches_matter_count_on_a_fast_core_only():
    references = side((12, 100e-6, 100e-6), (8, 55e-6, 74e-6))
    candidates = side((12, 60e-6, 100e-6), (8, 45e-6, 74e-6))
    selection = select((references, candidates), CONFIG)
    assert selection.steady and calls_of(selection) == {(55e-6, 45e-6)}
    assert len(selection.charged[0]) == 20  # hidden work is still searched in all undisturbed batches


def test_batches_when_selected_are_quick_on_both_sides():
    """Both sides are the same reference, on a core whose speed changes faster than batches do."""
    chance = random.Random(0)

    def drawn(number: int) -> list[Batch]:
        paces = [chance.gauss(1.0, 0.06) for _ in range(number)]
        return [batch(60e-6 * pace, 75e-6 * pace * chance.gauss(1.0, 0.01)) for pace in paces]

    def mean(batches: list[Batch]) -> float:
        return statistics.fmean(batch.times[0] for batch in batches)

    selection = select((drawn(4000), drawn(4000)), CONFIG)
    assert selection.steady and len(selection.sides[0]) < 3500
    assert mean(selection.sides[0]) / mean(selection.sides[1]) == pytest.approx(1.0, abs=0.002)


def test_batches_when_a_candidate_slows_most_of_them_count_all_the_same():
    """The candidate is slow beside the events of most batches, so as to choose the ones that count."""
    references = side((20, *QUIET))
    candidates = side((7, 40e-6, 75e-6), (13, 60e-6, 100e-6))
    selection = select((references, candidates), CONFIG)
    assert len(selection.sides[0]) == 20 and not selection.steady


def test_batches_when_calls_are_long_count_whatever_the_core_does():
    references, candidates = side((6, 4e-3, 100e-6), (6, 4e-3, 74e-6)), side((12, 2e-3, 100e-6))
    selection = select((references, candidates), CONFIG)
    assert selection.steady and len(selection.sides[0]) == 12
    assert mostly_launches(CONFIG.timing, 0.1e-3) and not mostly_launches(CONFIG.timing, 1e-3)
    assert not mostly_launches(TimingConfig(), 1e-6)


def test_batches_when_work_is_beside_every_call_are_not_excluded():
    references, candidates = side((12, *QUIET)), side((12, 10e-6, 300e-6))
    assert len(select((references, candidates), CONFIG).sides[0]) == 12


def test_batches_when_pairs_are_few_count_all():
    for number in range(4):
        selection = select((side((number, *QUIET)), side((number, *QUIET))), CONFIG)
        assert len(selection.sides[0]) == number
