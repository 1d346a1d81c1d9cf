"""The staged reward, computed by hand from its table."""

from __future__ import annotations

import math

import pytest

from cudal1_ray.evaluation.reasons import DESCRIPTIONS
from cudal1_ray.evaluation.verdict import Verdict
from cudal1_ray.rewards import RewardsConfig, verdict_reward
from cudal1_ray.rewards.reward import VOID_REASONS

STAGED = RewardsConfig(kind="staged")
LN2 = math.log(2.0)


def rejected(*reasons: str, **fields) -> float | None:
    return verdict_reward(Verdict.rejected("p", reasons, **fields), STAGED)


def right(speedup: float = 1.0, low: float = 0.0, share: float = 0.0, config: RewardsConfig = STAGED, **fields):
    low = low or speedup * 0.99
    verdict = Verdict(
        "p", "accepted", speedup=speedup, credited_speedup=speedup, speedup_low=low, speedup_high=speedup * 1.01,
        own_kernel_share=share, **{"own_kernel": share > 0.0, **fields},
    )  # fmt: skip
    return verdict_reward(verdict, config)


@pytest.mark.parametrize(
    ("reason", "reward"),
    [
        ("unparsable", 0.0),
        ("result_cache", 0.0),
        ("decoy_kernel", 0.0),
        ("missing_model", 0.05),
        ("compile_error", 0.05),
        ("whole_graph_compiler", 0.05),
        ("a_rule_of_later_versions", 0.05),
        ("runtime_error", 0.1),
        ("timeout", 0.1),
        ("wrong_structure", 0.2),
        ("shape_broadcast", 0.2),
        ("output_dtype", 0.2),
        ("wrong_output", 0.2),
        ("no_op_rewrite", 0.2),
        ("no_own_kernel", 0.2),
        ("same_operations", 0.2),
    ],
)
def test_staged_reward_when_a_candidate_is_rejected_is_its_rung(reason, reward):
    assert rejected(reason) == reward


def test_the_right_shape_pays_more_only_when_an_own_kernel_ran():
    assert rejected("wrong_output", own_kernel=True) == 0.3
    assert rejected("nan_comparison", own_kernel=True) == 0.3
    assert rejected("wrong_structure", own_kernel=True) == 0.2


def test_staged_reward_when_there_are_several_reasons_is_the_lowest():
    assert rejected("wrong_output", "runtime_error") == 0.1
    assert rejected("wrong_output", "result_cache") == 0.0


def test_staged_reward_when_the_reference_is_reworded_is_that_of_running():
    assert right(1.0) == 0.2
    assert right(1.02, low=0.99) == 0.2
    assert right(0.3) == 0.2
    assert right(1.0, share=0.9, flags=("same_operations",)) == 0.2


def test_staged_reward_when_speed_exceeds_the_interval_pays_unless_a_kernel_is_required():
    assert right(2.0, low=1.9) == pytest.approx(0.2 + math.log(2.9) - LN2)
    required = RewardsConfig(kind="staged", own_kernel_required=True)
    assert right(2.0, low=1.9, config=required) == 0.2
    assert right(2.0, low=1.9, share=0.8, config=required) == pytest.approx(0.5 + math.log(3.0))


def test_staged_reward_when_a_kernel_is_the_candidates_grows_with_its_share_then_speed():
    assert right(1.0, low=1.0, share=0.5) == pytest.approx(0.5 + LN2)
    assert right(3.0, share=0.7) == pytest.approx(0.5 + math.log(4.0))
    assert right(0.1, share=1.0) == pytest.approx(0.5 + math.log(1.1))
    # 1 - 0.95 / 1.0 = 0.05, a quarter of what pays in full.
    assert right(1.0, low=1.0, share=0.05) == pytest.approx(0.2 + 0.25 * (0.5 + LN2 - 0.2))
    # A fused tail of 1% of the time that removed a tenth of the reference's: 1 - 0.99 / 1.1 = 0.1.
    tail = right(1.1, low=1.1, share=0.01)
    assert tail > right(1.1, low=1.1) and tail == pytest.approx(0.2 + math.log(2.1) - LN2 + 0.5 * (0.3 + LN2))


def test_staged_reward_when_a_kernel_does_no_work_pays_nothing_for_it():
    assert right(0.5, low=0.5, share=0.5) == 0.2  # a copy of the output behind the reference's own operators
    assert right(1.0, low=0.98, share=0.0012) == 0.2  # a decoy


def test_staged_reward_when_a_kernels_time_is_unknown_pays_half():
    assert right(1.0, share=0.0, own_kernel=True) == pytest.approx(0.2 + 0.5 * (0.5 + LN2 - 0.2))


def test_staged_reward_when_rungs_are_climbed_rises():
    ladder = [
        rejected("unparsable"),
        rejected("compile_error"),
        rejected("runtime_error"),
        rejected("wrong_structure"),
        rejected("wrong_output", own_kernel=True),
        right(0.01, share=1.0),
        right(1.0, share=1.0),
        right(2.0, share=1.0),
    ]
    assert ladder == sorted(ladder) and len(set(ladder)) == len(ladder)
    assert right(1.0) <= rejected("wrong_structure")


def test_staged_reward_when_a_candidate_is_rejected_is_below_a_right_kernel():
    for reason in DESCRIPTIONS.keys() - VOID_REASONS:
        assert rejected(reason, own_kernel=True) <= 0.3, reason
