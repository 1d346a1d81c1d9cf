"""Time that is spent outside the measured window, or in few of many calls, is found and charged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudal1_ray.evaluation.timing.clocks import Batch, Span, cpu_windows, unclocked_work, uneven
from cudal1_ray.evaluation.timing.estimate import on_gpu
from cudal1_ray.evaluation.timing.steady import SelectedBatches


def _batches(window, *, prepare=1e-3, fetch=1e-3, idle=0.0, wall=None, n=8):
    def span(cpu):
        return Span(cpu if wall is None else wall, cpu, 0.0)

    quiet = Span(prepare, prepare, 0.0)
    rest = (quiet, span(window), Span(fetch, fetch, 0.0), Span(idle, idle, 0.0))
    return [Batch(4, (window / 4,) * 4, *rest) for _ in range(n)]


def test_work_when_outside_the_window_is_reported():
    honest = _batches(4e-3)
    for hidden, where in (({"prepare": 4e-3}, "before"), ({"idle": 4e-3}, "between")):
        work = unclocked_work(honest, _batches(1e-4, **hidden), 1e-4, "cpu")
        assert work.reason == "async_thread" and where in work.detail
        assert work.per_batch > 2e-3
    late = unclocked_work(honest, _batches(1e-4, fetch=3e-3), 1e-4, "cpu")
    assert late.reason == "lazy_tensor" and "looking at an output" in late.detail
    fair = unclocked_work(honest, _batches(2e-3), 2e-3, "cpu")
    assert fair.per_batch == 0.0 and not fair.reason


def test_waiting_when_a_thread_causes_it_hides_nothing_on_a_gpu():
    def prepared(cpu, waiting):
        return [replace(batch, prepare=Span(1e-3 + waiting, cpu, waiting)) for batch in _batches(4e-3)]

    honest = _batches(4e-3)
    assert unclocked_work(honest, prepared(1e-3, 5e-3), 4e-3, "cuda").per_batch == 0.0  # another program had the core
    assert unclocked_work(honest, prepared(6e-3, 5e-3), 4e-3, "cuda").per_batch > 4e-3


def test_unclocked_work_when_some_batches_leave_work_over_charges_the_mean():
    """A thread that is not joined ends within most windows, and after others, which no median shows."""
    quiet, late = _batches(4e-3)[0], Span(2e-3, 2e-3, 0.0)
    references = [quiet] * 20
    for phase in ("prepare", "idle", "fetch"):
        candidates = [replace(quiet, looked=1, placed=True, **{phase: late})] * 8 + [
            replace(quiet, looked=1, placed=True)
        ] * 12
        charged = unclocked_work(references, candidates, 4e-3, "cpu").per_batch
        assert charged > 0.2e-3 and unclocked_work(references, candidates, 4e-3, "cuda").per_batch == 0.0, phase
    layout = replace(quiet, looked=1, fetch=Span(1.4e-3, 1.4e-3, 0.0))
    assert unclocked_work(references, [layout] * 20, 4e-3, "cpu").per_batch == 0.0


def test_calls_when_a_few_do_the_work_of_many_count_as_much():
    def batches(times):
        return [replace(batch, calls=len(times), times=times) for batch in _batches(1e-3, n=12)]

    references = batches((100e-6,) * 9 + (300e-6,))
    assert uneven(references, batches((50e-6,) * 9 + (150e-6,)), 2.0) == 0.0
    assert uneven(references, batches((50e-6,) * 6 + (180e-6,) * 4), 2.0) == pytest.approx(42e-6, rel=0.05)
    assert uneven(references, batches((50e-6,) * 10), 2.0) == 0.0  # it has no slow call at all


def test_sleeping_when_timed_is_charged_and_waiting_for_a_core_is_not():
    ours, theirs = cpu_windows(_batches(4e-3), _batches(1e-3, wall=4e-3), 0.0, 1)
    assert theirs[0] > 3e-3
    held_up = [Batch(4, (0.25e-3,) * 4, b.prepare, Span(9e-3, 1e-3, 8e-3), b.fetch, b.idle) for b in _batches(1e-3)]
    _, theirs = cpu_windows(_batches(4e-3), held_up, 0.0, 1)
    assert theirs[0] == pytest.approx(1e-3)


def test_inner_clock_when_forged_on_cuda_is_overruled_by_the_outer():
    forged = [Batch(4, (0.25e-6,) * 4, b.prepare, Span(4.2e-3, 1e-4, 0.0), b.fetch, b.idle) for b in _batches(4e-3)]
    honest = [Batch(4, (1e-3,) * 4, b.prepare, Span(4.2e-3, 1e-4, 0.0), b.fetch, b.idle) for b in _batches(4e-3)]
    sides = honest, forged
    ours, theirs, _, _ = on_gpu(SelectedBatches(sides, sides))
    assert theirs[0] > 0.9 * ours[0]
