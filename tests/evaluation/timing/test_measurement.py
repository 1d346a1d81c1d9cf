"""Intervals over several values and processes, and the number of processes that are measured."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mstats

from cudal1_ray.evaluation.config import TimingConfig
from cudal1_ray.evaluation.timing.measurement import Measurement, combine, wants_another, wants_fresh_reference
from cudal1_ray.evaluation.timing.statistics import Interval, median, trimmed_interval


@given(st.floats(-1, 1), st.floats(0.001, 0.2), st.integers(8, 200))
@settings(max_examples=60, deadline=None)
def test_trimmed_interval_when_there_are_outliers_covers_the_centre(centre, noise, n):
    chance = random.Random(7)
    values = [chance.gauss(centre, noise) for _ in range(n)]
    clean = trimmed_interval(values)
    assert abs(clean.centre - centre) < 5 * noise / math.sqrt(n) + 1e-9
    spoiled = trimmed_interval(values[:-1] + [50.0])
    assert abs(spoiled.centre - clean.centre) < 4 * noise / math.sqrt(n) + 0.5 * noise


@given(st.lists(st.floats(-3, 3), min_size=10, max_size=60), st.sampled_from((0.1, 0.2, 0.25)))
@settings(max_examples=60, deadline=None)
def test_trimmed_interval_when_computed_is_yuens_as_in_scipy(values, trim):
    low, high = mstats.trimmed_mean_ci(np.array(values), (trim, trim))
    interval = trimmed_interval(values, trim)
    assert interval.centre == pytest.approx((low + high) / 2, abs=1e-9)
    assert interval.half_width == pytest.approx((high - low) / 2, abs=1e-9)


def test_trimmed_interval_when_values_are_few_is_infinite():
    assert trimmed_interval([0.1, 0.1]).half_width == math.inf
    assert median([]) == 0.0 and median([3.0, 1.0, 2.0]) == 2.0


def test_measurement_when_a_percent_matters_takes_more_processes():
    timing = TimingConfig(
        half_width=0.008, half_width_growth=0.04, contestants=1, most_contestants=4, process_spread=0.0045,
        launch_spread_us=1.0,
    )  # fmt: skip

    def processes(reference_ms, *centres, own=0.005):
        """Return how many processes are measured if they have these speedups; further ones repeat the last."""
        parts = []
        while wants_another(parts, timing):
            log = math.log([*centres, *centres[-1:] * 20][len(parts)])
            parts.append(Measurement(Interval(log, own, 20), 1.0, reference_ms, 20, (log,)))
        return len(parts)

    assert processes(1.0, 2.0) == 1
    assert processes(1.0, 1.0) == 2
    assert processes(0.02, 2.0) == 2 and processes(0.02, 4.0) == processes(0.02, 0.5) == 1  # a slow core
    assert processes(0.02, 1.0) == 4
    assert processes(1.0, 1.0, 1.2) == 4  # two processes disagree
    assert processes(1.0, 0.2) == 2 and processes(1.0, 0.02, 1.0) == 4  # one process is improbably slow
    timing.most_near_1 = 16
    assert processes(0.02, 1.003) == 4
    assert processes(0.02, 1.012) == 12 and processes(0.02, 0.988) == 4  # chance may explain the gain
    assert processes(0.02, 1.012, 1.012, 1.0) == 4  # chance explains it
    assert processes(0.02, 1.04) == processes(0.02, 0.96) == processes(0.02, 1.06) == 4  # chance does not explain it
    assert processes(40.0, 1.012, own=0.03) == 8 and processes(40.0, 0.988, own=0.03) == 4  # long calls differ
    assert processes(0.02, 4.0) == 1
    timing.most_half_width = 0.0144
    assert processes(0.02, 4.0) == processes(0.02, 1.2) == 4 and processes(1.0, 4.0) == 1  # two agree within 2%
    timing.half_width_growth, timing.most_half_width = 0.2, 1.0
    assert processes(1.0, 1.04) == 2 and processes(1.0, 1.2) == 1  # chance makes four percent, too
    assert processes(1.0, 1.08) == 2 and processes(1.0, 1.08, 0.93) == 4  # and rarely a tenth
    assert not wants_fresh_reference([], timing)
    base = Measurement(Interval(0.01, 0.005, 20), 0.02, 0.02, 20, (0.01,))
    assert wants_fresh_reference([base], timing)
    assert wants_fresh_reference([replace(base, reference_ms=2.0)], timing)  # its tensors' places may explain it
    assert not wants_fresh_reference([replace(base, reference_ms=2.0, interval=Interval(0.004, 0.005, 20))], timing)
    assert wants_fresh_reference([replace(base, interval=Interval(0.4, 0.005, 20))], timing)  # launches dominate
    assert not wants_fresh_reference([replace(base, reference_ms=2.0, interval=Interval(0.4, 0.005, 20))], timing)
    doubtful = replace(base, interval=Interval(0.9, 0.3, 20), steady=False)
    assert wants_another([doubtful], timing)  # a slow core, or other work: its speedup proves nothing
    assert combine([doubtful, base, base], timing).interval.centre == pytest.approx(0.01)
    assert combine([doubtful, base], timing).interval.low < 1.01 < combine([doubtful, base], timing).interval.high
    quick, slow = (
        replace(base, core_s=core_s, interval=Interval(log, 0.005, 20)) for core_s, log in ((18e-6, 0.2), (27e-6, 0.3))
    )
    mixed = combine([slow, quick, slow, quick], timing)
    assert mixed.interval.centre == pytest.approx(0.2)  # the others ran on slow cores
    assert [pair.counted for pair in mixed.processes] == [False, True, False, True]
    assert mixed.processes[0].speedup == slow.interval.ratio
    assert mixed.device_speedup == 0.0  # no process measured it
    alone = [replace(quick, device_s=(3e-6, time_s)) for time_s in (1e-6, 2e-6, 0.0)]  # the last time is forged
    assert combine(alone, timing).device_speedup == pytest.approx(math.sqrt(3 * 1.5))
    assert combine(alone, timing).processes[1].device_runtime_ms == pytest.approx(2e-3)
    assert wants_another([slow, quick, slow, slow], timing)  # only one process ran on a fast core
    assert not wants_another([slow, quick, slow, slow, quick], timing)
    assert not wants_another([slow, quick, *[slow] * 14], timing)
    assert combine([slow, slow], timing).interval.centre == pytest.approx(0.3)
    hidden = replace(base, reference_ms=1.3 * base.reference_ms, interval=Interval(0.3, 0.005, 20))
    assert combine([quick, hidden, quick], timing).interval.centre == pytest.approx(0.2)  # its reference was slow, too
    kernels = [replace(part, reference_ms=50 * part.reference_ms) for part in (hidden, quick)]
    assert combine(kernels, timing).interval.centre == pytest.approx(0.25)  # no core explains the difference
    timing.contestants, timing.most_contestants = 3, 1
    assert processes(1.0, 2.0) == 3


def test_process_when_its_core_ran_slowly_is_left_out():
    timing = TimingConfig(process_spread=0.0045, launch_spread_us=1.0)
    fast, slow = (
        Measurement(Interval(log, 0.005, 20), 0.9, 0.9, 20, (log,), core_s=core_s)
        for log, core_s in ((0.10, 18e-6), (0.08, 27e-6))
    )
    combined = combine([fast, slow, replace(fast, core_s=20e-6)], timing)
    assert combined.interval.centre == pytest.approx(0.10)
    assert [pair.counted for pair in combined.processes] == [True, False, True]
    assert combine([slow, slow], timing).interval.centre == pytest.approx(0.08)  # no faster core is known


def test_interval_when_few_processes_agree_by_chance_is_not_narrow():
    timing = TimingConfig(process_spread=0.0045)

    def half_width(*centres: float) -> float:
        parts = [Measurement(Interval(log, 0.0, 20), 1.0, 1.0, 20, (log,)) for log in centres]
        return combine(parts, timing).interval.half_width

    assert half_width(0.1, 0.1, 0.1, 0.1) == pytest.approx(0.0045)  # the prior spread
    assert half_width(0.08, 0.12) > 2.5 * math.sqrt(2) * 0.02 / math.sqrt(2)
    many = [0.08, 0.12] * 16
    assert half_width(*many) == pytest.approx(2.03 * 0.0203 / math.sqrt(32), rel=0.02)
