"""The pace of a core, and the core that is fastest."""

from __future__ import annotations

import os

import pytest

from cudal1_ray.evaluation.timing.pace import even_pairs, fastest_core, on_core


def test_pairs_when_taken_at_different_paces_are_not_compared():
    even, uneven = [1.0, 1.01, 1.0, 1.02], [1.0, 1.0, 1.5, 1.5]
    assert even_pairs([even, uneven, even, even]) == [0, 2, 3]
    # Where the pace changes all the time, the more even half is compared.
    assert len(even_pairs([[1.0, 1.0 + share / 10] for share in range(2, 12)])) == 5


@pytest.mark.parametrize("place", [0, -1])
def test_fastest_core_when_the_loop_ran_on_several_is_the_quickest(monkeypatch, place):
    before = os.sched_getaffinity(0)
    fast = sorted(before)[place]
    monkeypatch.setattr(
        "cudal1_ray.evaluation.timing.pace.pace", lambda: 1.0 if os.sched_getaffinity(0) == {fast} else 2.0
    )
    assert fastest_core(before, rounds=3) == fast
    assert os.sched_getaffinity(0) == before


def test_thread_when_pinned_stays_on_its_core_until_it_leaves():
    before = os.sched_getaffinity(0)
    with on_core(min(before)):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
