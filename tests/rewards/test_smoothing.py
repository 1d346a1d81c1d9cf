"""Reward smoothing against numpy, over batches, problems and a restart."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1_ray.rewards import RewardsConfig, RewardSmoother


def formula(rewards, batch, clip=1.5):
    return np.clip((np.array(batch) - np.mean(rewards)) / np.std(rewards), -clip, clip)


def test_running_statistics_when_batches_come_equal_numpys():
    rng = np.random.default_rng(2)
    smoother, rewards = RewardSmoother(), []
    clipped = 0
    for _ in range(50):
        batch = rng.lognormal(0.0, 1.0, rng.integers(1, 20)).tolist()
        rewards += batch
        if len(rewards) < 2:
            assert smoother.smooth(batch) == [0.0] * len(batch)
            continue
        smoothed = smoother.smooth(batch)
        np.testing.assert_allclose(smoothed, formula(rewards, batch), rtol=1e-9, atol=1e-12)
        clipped += sum(abs(value) == 1.5 for value in smoothed)
    assert clipped > 10, "the case with outliers was exercised"


@settings(deadline=None)
@given(st.lists(st.floats(0.0, 1e6), min_size=2, max_size=50).filter(lambda x: np.std(x) > 1e-6 * max(1, np.mean(x))))
def test_smoothed_rewards_when_of_any_batch_equal_numpys(batch):
    smoothed = RewardSmoother().smooth(batch)
    np.testing.assert_allclose(smoothed, formula(batch, batch), rtol=1e-5, atol=1e-5)
    assert max(map(abs, smoothed)) <= 1.5


@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0, 3.3, 1e5])
def test_smoothed_rewards_when_equal_are_zero(reward):
    smoother = RewardSmoother()
    for _ in range(5):
        assert smoother.smooth([reward] * 7) == [0.0] * 7


def test_smoothing_clip_when_configured_is_followed():
    smoother = RewardSmoother(RewardsConfig(smoothing_clip=0.5))
    assert smoother.smooth([0.0, 10.0]) == [-0.5, 0.5]


def test_smoothed_rewards_when_there_is_an_outlier_are_clipped():
    assert max(RewardSmoother().smooth([1.0] * 30 + [120.0])) == 1.5


def test_smoothing_when_of_problem_scope_keeps_statistics_apart():
    smoother = RewardSmoother(RewardsConfig(smoothing_scope="problem"))
    smoothed = smoother.smooth([1.0, 100.0, 2.0, 200.0, 3.0, 300.0], ["a", "b"] * 3)
    expected = formula([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(smoothed[0::2], expected)
    np.testing.assert_allclose(smoothed[1::2], expected)
    again = smoother.smooth([5.0], ["a"])
    np.testing.assert_allclose(again, formula([1.0, 2.0, 3.0, 5.0], [5.0]))


def test_smoothing_when_of_problem_scope_needs_problem_ids():
    smoother = RewardSmoother(RewardsConfig(smoothing_scope="problem"))
    with pytest.raises(ValueError, match="problem id"):
        smoother.smooth([1.0])
    with pytest.raises(ValueError, match="problem id"):
        smoother.smooth([1.0, 2.0], ["a"])


@pytest.mark.parametrize("scope", ["run", "problem"])
def test_smoothing_when_restarted_continues_exactly(scope):
    rng = np.random.default_rng(3)
    config = RewardsConfig(smoothing_scope=scope)
    whole, first = RewardSmoother(config), RewardSmoother(config)
    ids = ["a", "b", "c"] * 5
    batches = rng.lognormal(size=(4, 15)).tolist()
    for batch in batches[:2]:
        assert whole.smooth(batch, ids) == first.smooth(batch, ids)
    second = RewardSmoother(config)
    second.set_state(json.loads(json.dumps(first.get_state())))
    for batch in batches[2:]:
        assert whole.smooth(batch, ids) == second.smooth(batch, ids)


def test_smoothing_when_a_batch_is_empty_returns_none():
    smoother = RewardSmoother()
    assert smoother.smooth([]) == [] and smoother.get_state() == {}
