"""Intervals over several processes, and statistics that single outliers do not change."""

from __future__ import annotations

import math
import statistics

import pytest

from cudal1_ray.evaluation.timing.statistics import Interval, bucket_means, combine_intervals, spread, trimmed_mean


def test_interval_when_processes_differ_is_widened_by_their_spread():
    parts = [Interval(0.00, 0.01, 10), Interval(0.06, 0.01, 10), Interval(0.03, 0.01, 10)]
    whole = combine_intervals(parts)
    deviation = statistics.stdev([0.00, 0.06, 0.03])
    assert whole.centre == pytest.approx(0.03) and whole.n == 30
    assert whole.half_width == pytest.approx(4.302653 * deviation / math.sqrt(3))
    agreed = combine_intervals([Interval(0.02, 0.03, 9), Interval(0.02, 0.04, 9)])
    assert agreed.half_width == pytest.approx(0.05 / 2) and agreed.centre == pytest.approx(0.02)
    assert combine_intervals(parts[:1]) == parts[0]
    one_is_off = combine_intervals([Interval(0.00, 0.01, 10), Interval(0.01, 0.01, 10), Interval(0.40, 0.01, 10)])
    assert one_is_off.centre == pytest.approx(0.01) and one_is_off.half_width > 0.3
    six = combine_intervals([Interval(centre, 0.01, 10) for centre in (0.03, -0.90, 0.00, 0.01, 0.02, 0.40)])
    assert six.centre == pytest.approx(0.015)  # without a quarter at either end


def test_robust_statistics_when_computed_by_hand_are_these():
    assert trimmed_mean([1.0, 2.0, 3.0, 4.0, 100.0], 0.2) == pytest.approx(3.0)
    assert trimmed_mean([], 0.2) == 0.0 and trimmed_mean([5.0], 0.4) == 5.0
    assert spread([1.0, 1.0, 1.0, 50.0]) == 0.0
    assert bucket_means([1.0, 3.0, 5.0, 7.0, 9.0], 2) == (3.0, 8.0)
    assert bucket_means(range(1, 18), 7) == (2.0, 5.0, 8.0, 10.5, 12.5, 14.5, 16.5)
    assert bucket_means([1.0], 2) == ()
