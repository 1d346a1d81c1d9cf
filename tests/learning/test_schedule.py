"""Learning rates by hand."""

from __future__ import annotations

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.learning.schedule import LearningRateSchedule


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2]),
        ("cosine", [0.5, 1.0, 1.0, 0.882843, 0.6, 0.317157, 0.2, 0.2]),
    ],
)
def test_rates_when_scheduled_are_these(kind, expected):
    schedule = LearningRateSchedule(1.0, kind, warmup_steps=2, total_steps=7, final_share=0.2)
    assert [schedule.rate(step) for step in range(8)] == pytest.approx(expected, abs=1e-6)


def test_schedule_when_it_ends_needs_its_total_steps():
    with pytest.raises(UserError, match="learner.schedule=cosine"):
        LearningRateSchedule(1.0, "cosine")
