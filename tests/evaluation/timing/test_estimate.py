"""What a candidate on a GPU is charged for beside its events."""

from __future__ import annotations

import pytest

from cudal1_ray.evaluation.timing.clocks import Batch, Span, gains
from cudal1_ray.evaluation.timing.estimate import on_gpu
from cudal1_ray.evaluation.timing.steady import SelectedBatches


def _batches(inner, wall, number=8):
    quiet = Span(1e-3, 1e-3, 0.0)
    return [Batch(32, (inner / 32,) * 32, quiet, Span(wall, wall, 0.0), None, None) for _ in range(number)]


def test_process_when_slow_and_without_gain_is_not_charged():
    references = _batches(400e-6, 2.5e-3)
    slow, hiding = _batches(398e-6, 3.2e-3), _batches(100e-6, 3.2e-3)
    assert not gains([400e-6], [398e-6]) and gains([400e-6], [100e-6])
    for candidates, charged in ((slow, 398e-6), (hiding, 100e-6 + 1e-3)):
        sides = references, candidates
        _, theirs, _, _ = on_gpu(SelectedBatches(sides, sides))
        assert theirs == pytest.approx([charged] * 8)


def test_work_when_beside_the_events_or_in_few_calls_is_charged():
    """A reference with slow moments hides none of a candidate's work."""
    quiet, number = Span(1e-3, 1e-3, 0.0), 8

    def batches(times, beside):
        wall = sum(times) + beside
        return [Batch(32, tuple(times), quiet, Span(wall, wall, 0.0), None, None) for _ in range(number)]

    references = batches([100e-6] * 24 + [200e-6] * 8, 2e-3)
    on_a_stream = batches([10e-6] * 32, 2e-3 + 32 * 90e-6)
    one_for_all = batches([10e-6] * 31 + [32 * 90e-6], 2e-3)
    for candidates in (on_a_stream, one_for_all):
        sides = references, candidates
        ours, theirs, interval, _ = on_gpu(SelectedBatches(sides, sides))
        assert ours == pytest.approx([3.2e-3] * number)
        assert min(theirs) > 0.7 * 3.2e-3 and interval.ratio < 1.4, candidates[0].times
    _, theirs, _, _ = on_gpu(SelectedBatches((references, on_a_stream), (references, on_a_stream)))
    assert min(theirs) == pytest.approx(32 * 100e-6)
