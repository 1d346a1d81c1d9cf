"""Time that is spent outside the measured window, or in few of many calls, is found and charged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudal1_ray.evaluation.timing.clocks import (
    Batch,
    Foreknown,
    Overhead,
    Span,
    outside,
    too_much_outside,
    trailing,
    uneven,
    windows,
)


def _batches(window, *, prepare=1e-3, fetch=1e-3, idle=0.0, wall=None, n=8):
    def span(cpu):
        return Span(cpu if wall is None else wall, cpu, 0.0)

    quiet = Span(prepare, prepare, 0.0)
    rest = (quiet, span(window), Span(fetch, fetch, 0.0), Span(idle, idle, 0.0))
    return [Batch(4, (window / 4,) * 4, *rest) for _ in range(n)]


NO_OVERHEAD = Overhead(0.0, 0.0)


def test_work_outside_the_window_is_found():
    honest = _batches(4e-3)
    for hidden, where in (({"prepare": 4e-3}, "before"), ({"idle": 4e-3}, "between")):
        found = outside(honest, _batches(1e-4, **hidden), 1e-4 / 4, "cpu")
        assert where in found.where
        assert found.per_batch > 2e-3
        assert too_much_outside(found, 1e-4)
    late = outside(honest, _batches(1e-4, fetch=3e-3), 1e-4 / 4, "cpu")
    assert "looking at an output" in too_much_outside(late, 1e-4)
    fair = outside(honest, _batches(2e-3), 2e-3 / 4, "cpu")
    assert fair.per_batch == 0.0 and not too_much_outside(fair, 2e-3)


def test_a_thread_that_keeps_the_main_one_waiting_hides_nothing_on_a_gpu():
    def prepared(cpu, waiting):
        return [replace(batch, prepare=Span(1e-3 + waiting, cpu, waiting)) for batch in _batches(4e-3)]

    honest = _batches(4e-3)
    assert outside(honest, prepared(1e-3, 5e-3), 1e-3, "cuda").per_batch == 0.0  # another program had the core
    assert outside(honest, prepared(6e-3, 5e-3), 1e-3, "cuda").per_batch > 4e-3


def test_what_a_thread_that_nobody_waits_for_leaves_over_is_charged_batch_by_batch():
    """It ends within fewer than half of the windows, after others, and no median shows where."""
    quiet, left = _batches(4e-3)[0], 1.5e-3
    late = Span(left, left, 0.0)
    unseen, following = replace(quiet, fetch=None), replace(quiet, idle=late)
    references = [quiet] * 12
    early = replace(quiet, window=Span(2.5e-3, 2.5e-3, 0.0))
    looked = replace(early, fetch=Span(1e-3 + left, 1e-3 + left, 0.0), looked=1)
    prepared = replace(unseen, prepare=Span(1e-3 + left, 1e-3 + left, 0.0))
    candidates = [early, following, looked, quiet, early, prepared, *[unseen] * 6]
    assert outside(references, candidates, 1e-3, "cpu").per_batch == 0.0
    charged = trailing(references, candidates)
    assert [number for number, time_s in enumerate(charged) if time_s] == [0, 2, 4]
    assert [charged[0], charged[2], charged[4]] == pytest.approx([1.45e-3, 1.3e-3, 1.3e-3])
    assert trailing(references, [replace(quiet, looked=1)] * 12) == [0.0] * 12
    unknown = replace(prepared, idle=None)  # something else came between
    assert trailing(references[:2], [early, unknown]) == [0.0, 0.0]
    layout = replace(quiet, looked=1, windowed=True, fetch=Span(1.4e-3, 1.4e-3, 0.0))
    assert trailing(references, [layout] * 12) == [0.0] * 12


def test_a_few_calls_that_do_the_work_of_many_count_as_much_as_these():
    def batches(times):
        return [replace(batch, calls=len(times), times=times) for batch in _batches(1e-3, n=12)]

    references = batches((100e-6,) * 9 + (300e-6,))
    assert uneven(references, batches((50e-6,) * 9 + (150e-6,)), 2.0) == 0.0
    assert uneven(references, batches((50e-6,) * 6 + (180e-6,) * 4), 2.0) == pytest.approx(42e-6, rel=0.05)
    assert uneven(references, batches((50e-6,) * 10), 2.0) == 0.0  # it is better than that


def test_who_must_know_of_later_calls_is_seen_and_more_pairs_are_asked_for_only_while_they_could_tell():
    together = [[1.0] * 8, [0.5] * 8]  # of a call, reference and candidate

    def found(*late, allowed=0.0):
        return Foreknown.of(together, [[1.0] * len(late), list(late)], allowed)

    knows = found(*[0.9] * 8)
    assert knows.why() and knows.settled and knows.extra == pytest.approx(0.4)
    honest = found(*[0.5, 0.55] * 4)
    assert not honest.why() and honest.settled
    wavers = found(*[0.35, 0.95] * 3)
    assert not wavers.why() and not wavers.settled and wavers.likely == 0.0
    seems = found(*[0.45, 0.95] * 3)
    assert not seems.why() and seems.likely == pytest.approx(seems.extra)
    assert knows.likely == knows.extra and honest.likely == 0.0
    little = found(*[0.66, 0.69, 0.72] * 3)  # more than caches do, by less than chance
    assert not little.why() and little.settled and little.likely == pytest.approx(0.19)
    assert found(*[0.35, 0.95] * 3, allowed=1.0).settled  # so much is allowed: it cannot come to more


def test_sleeping_is_charged_and_waiting_for_a_core_is_not():
    ours, theirs = windows(_batches(4e-3), _batches(1e-3, wall=4e-3), NO_OVERHEAD, "cpu", 1)
    assert theirs[0] > 3e-3
    held_up = [Batch(4, (0.25e-3,) * 4, b.prepare, Span(9e-3, 1e-3, 8e-3), b.fetch, b.idle) for b in _batches(1e-3)]
    _, theirs = windows(_batches(4e-3), held_up, NO_OVERHEAD, "cpu", 1)
    assert theirs[0] == pytest.approx(1e-3)


def test_on_cuda_the_outer_clock_overrules_a_forged_inner_one():
    forged = [Batch(4, (0.25e-6,) * 4, b.prepare, Span(4.2e-3, 1e-4, 0.0), b.fetch, b.idle) for b in _batches(4e-3)]
    honest = [Batch(4, (1e-3,) * 4, b.prepare, Span(4.2e-3, 1e-4, 0.0), b.fetch, b.idle) for b in _batches(4e-3)]
    ours, theirs = windows(honest, forged, NO_OVERHEAD, "cuda", 1)
    assert theirs[0] > 0.9 * ours[0]
