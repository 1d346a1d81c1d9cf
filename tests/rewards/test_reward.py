"""The reward of a verdict, and its rounding toward 1."""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.verdict import Verdict
from cudal1_ray.rewards import RewardsConfig, register_reward, reward_noise, round_toward_one, verdict_reward
from cudal1_ray.rewards.reward import robust_speedup


def accepted(speedup: float) -> Verdict:
    return Verdict("p", "accepted", speedup=speedup, credited_speedup=speedup)


REJECTED = Verdict.rejected("p", ("result_cache",), "cheated", speedup=50.0)


@pytest.mark.parametrize(
    ("speedup", "rounded"),
    [
        (1.118, 1.11),  # the paper's two examples
        (0.992, 1.0),
        (1.0, 1.0),
        (1.009, 1.0),
        (1.00999999, 1.0),
        (1.01, 1.01),
        (0.99, 0.99),
        (0.9900001, 1.0),
        (0.991, 1.0),
        (0.985, 0.99),
        (1.999, 1.99),
        (120.456, 120.45),
        (0.001, 0.01),
        (0.0, 0.0),
        # Two-decimal numbers whose binary neighbours lie on the wrong side: they stay.
        (1.13, 1.13),
        (1.15, 1.15),
        (2.01, 2.01),
        (4.35, 4.35),
        (8.29, 8.29),
        (0.29, 0.29),
        (0.57, 0.57),
        (0.07, 0.07),
        (3.3 / 3.0, 1.1),
        (0.1 + 0.2, 0.3),
        (1.1299999999, 1.12),
        (0.5700000001, 0.58),
        (math.nextafter(1.0, 2.0), 1.0),
        (math.nextafter(1.0, 0.0), 1.0),
        (1e-12, 0.01),
        (1e15, 1e15),
        (1e22, 1e22),
    ],
)
def test_rounding_when_toward_one_is_this_table(speedup, rounded):
    assert round_toward_one(speedup) == rounded


def test_rounding_when_a_number_has_two_decimals_keeps_it():
    assert [round_toward_one(n / 100) for n in range(30_000)] == [n / 100 for n in range(30_000)]


def test_rounding_when_decimals_are_configured_follows_them():
    assert round_toward_one(1.118, 1) == 1.1
    assert round_toward_one(0.913, 1) == 1.0
    assert round_toward_one(2.9, 0) == 2.0
    assert round_toward_one(1.23456, 4) == 1.2345


@settings(deadline=None)
@given(st.floats(0.0, 1e6), st.integers(0, 6))
def test_rounding_when_applied_moves_toward_one_by_less_than_a_unit(speedup, decimals):
    rounded = round_toward_one(speedup, decimals)
    dust = 1e-11 * speedup
    assert min(speedup - dust, 1.0) <= rounded <= max(speedup + dust, 1.0)
    assert abs(rounded - speedup) <= 10.0**-decimals + dust
    assert round_toward_one(rounded, decimals) == rounded


@settings(deadline=None)
@given(st.floats(0.0, 1e3), st.floats(0.0, 1e3))
def test_rounding_when_speedups_are_ordered_keeps_the_order(first, second):
    low, high = sorted((first, second))
    assert round_toward_one(low) <= round_toward_one(high)


@pytest.mark.parametrize("speedup", [math.nan, math.inf, -0.5])
def test_rounding_when_a_number_is_no_speedup_refuses_it(speedup):
    with pytest.raises(ValueError):
        round_toward_one(speedup)


@pytest.mark.parametrize("kind", ["speedup", "log_speedup", "success"])
def test_reward_when_a_candidate_is_rejected_is_zero_and_below_any_accepted(kind):
    config = RewardsConfig(kind=kind)
    assert verdict_reward(REJECTED, config) == 0.0
    assert verdict_reward(accepted(0.004), config) > 0.0


def test_reward_when_of_each_kind_is_this():
    assert verdict_reward(accepted(2.119), RewardsConfig(kind="speedup")) == 2.11
    assert verdict_reward(accepted(2.119), RewardsConfig(kind="speedup", round_decimals=None)) == 2.119
    assert verdict_reward(accepted(2.119), RewardsConfig(kind="success")) == 1.0
    assert verdict_reward(accepted(2.119), RewardsConfig(kind="log_speedup")) == math.log(3.11)


@pytest.mark.parametrize(
    "means, speedup",
    [
        ((1.2, 1.2, 1.2, 1.6, 1.2), None),
        ((1.2, 1.21, 1.2, 1.26, 1.2), 1.2),
        ((1.0, 1.125), None),
        ((1.0, 1.0625), 1.03125),
        ((1.0,), None),
        ((), None),
    ],
)
def test_robust_speedup_when_bucket_means_agree_is_their_median_else_none(means, speedup):
    assert robust_speedup(means, 0.005) == speedup


def test_robust_speedup_when_the_variance_is_the_limit_is_given():
    limit = statistics.variance([1.0, 1.5])
    assert robust_speedup([1.0, 1.5], limit) == 1.25 and robust_speedup([1.0, 1.5], limit * 0.999) is None


def test_robust_reward_when_buckets_differ_takes_their_median():
    config, means = RewardsConfig(kind="speedup", robust=True), (2.0, 2.05, 2.01, 1.99, 2.03, 2.02, 2.5)
    steady = dataclasses.replace(accepted(2.2), bucket_speedups=means[:6])
    assert verdict_reward(steady, config) == 2.01  # the median 2.015, rounded toward 1
    assert verdict_reward(steady, RewardsConfig(kind="speedup")) == 2.2
    scattered = dataclasses.replace(accepted(2.2), bucket_speedups=means)
    assert verdict_reward(scattered, config) is None
    assert verdict_reward(scattered, RewardsConfig(kind="speedup", robust=True, max_bucket_variance=0.1)) == 2.02
    assert verdict_reward(scattered, RewardsConfig(robust=True, kind="success")) == 1.0
    assert verdict_reward(accepted(2.2), config) is None  # too few runs for buckets


def test_reward_when_above_the_cap_is_the_cap():
    assert verdict_reward(accepted(50.0), RewardsConfig(kind="speedup", cap=10.0)) == 10.0
    assert verdict_reward(accepted(9.0), RewardsConfig(kind="speedup", cap=10.0)) == 9.0
    assert verdict_reward(accepted(50.0), RewardsConfig(kind="log_speedup", cap=10.0)) == math.log(11.0)
    assert verdict_reward(accepted(50.0), RewardsConfig(kind="success", cap=0.5)) == 1.0


@pytest.mark.parametrize("speedup", [0.0, math.nan, math.inf])
def test_reward_when_an_accepted_verdict_has_no_speedup_is_an_error(speedup):
    with pytest.raises(ValueError, match="credited"):
        verdict_reward(accepted(speedup), RewardsConfig())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "speed"),
        ("round_decimals", -1),
        ("cap", 0.0),
        ("smoothing_clip", 0.0),
        ("smoothing_scope", "world"),
        ("max_bucket_variance", 0.0),
        ("truncated", "cut"),
        ("least_noise", -0.1),
    ],
)
def test_rewards_config_when_a_value_is_wrong_names_its_field(field, value):
    with pytest.raises(UserError, match=f"rewards.{field}"):
        RewardsConfig(**{field: value}).validate()


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "conf" / "rewards").glob("*.yaml")), ids=str)
def test_reward_presets_when_composed_are_valid(path):
    assert path.read_text().startswith("# ")
    config = load_config([f"rewards={path.stem}"]).rewards
    assert config.kind == path.stem.removeprefix("robust_") and config.checker.judge == "none"
    assert config.robust == path.stem.startswith("robust_")
    assert config.smoothing == (path.stem in ("speedup", "robust_speedup"))
    verdict_reward(accepted(1.5), config)


@pytest.mark.parametrize("reason", ["evaluator_error", "reference_error", "degenerate_input", "unstable_timing"])
@pytest.mark.parametrize("kind", ["speedup", "success", "staged"])
def test_reward_when_evaluator_or_problem_is_at_fault_is_void(kind, reason):
    assert verdict_reward(Verdict.rejected("p", ("wrong_output", reason)), RewardsConfig(kind=kind)) is None


def test_reward_when_the_problem_is_degenerate_is_void():
    verdict = dataclasses.replace(accepted(2.0), degenerate=True)
    assert verdict_reward(verdict, RewardsConfig(kind="speedup")) is None


def test_reward_noise_when_the_intervals_lower_end_is_paid_is_not_lost():
    # Without an own kernel ln(1 + low) is paid; with one that takes over a part of the work, the part depends on low.
    plain = Verdict("p", "accepted", speedup=1.5, credited_speedup=1.5, speedup_low=1.49, speedup_high=1.51)
    config = RewardsConfig(kind="staged", least_noise=0.01)
    by_hand = math.log((1 + 1.49 * math.exp(0.01)) / (1 + 1.49 * math.exp(-0.01))) / 2
    assert reward_noise(plain, config) == pytest.approx(by_hand) and by_hand > 0.005
    tail = Verdict(
        "p", "accepted", speedup=1.0, credited_speedup=1.0, speedup_low=0.999, speedup_high=1.001,
        own_kernel=True, own_kernel_share=0.1,
    )  # fmt: skip
    # A share of 1 - 0.9 / 0.999 = 0.099, half of what pays in full, moves by 0.009 with 1% of speed.
    assert reward_noise(tail, config) == pytest.approx(0.009 / 0.2 * (0.3 + math.log(2)), rel=0.15)


def test_reward_noise_when_an_interval_is_given_follows_it_down_to_the_least():
    config = RewardsConfig(kind="speedup", least_noise=0.01)
    wide = dataclasses.replace(accepted(2.0), speedup_low=2.0 * math.exp(-0.196), speedup_high=2.0 * math.exp(0.196))
    assert reward_noise(wide, config) == pytest.approx(2.0 * math.sinh(0.1))
    narrow = dataclasses.replace(accepted(2.0), speedup_low=1.999, speedup_high=2.001)
    assert reward_noise(narrow, config) == pytest.approx(2.0 * math.sinh(0.01))
    assert reward_noise(REJECTED, config) == 0.0
    assert reward_noise(wide, RewardsConfig(kind="success")) == 0.0


def test_reward_when_registered_is_selected_by_name_and_its_name_is_unique():
    register_reward("test_inverse", _inverse)
    register_reward("test_inverse", _inverse)
    config = RewardsConfig(kind="test_inverse")
    config.validate()
    assert verdict_reward(accepted(4.0), config) == 0.25 and verdict_reward(REJECTED, config) == -1.0
    with pytest.raises(ValueError, match="test_inverse"):
        register_reward("test_inverse", lambda verdict, speedup, config: 0.0)


def _inverse(verdict: Verdict, speedup: float, config: RewardsConfig) -> float:
    return 1.0 / speedup if speedup else -1.0
