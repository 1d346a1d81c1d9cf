"""From verdicts to advantages: what a void evaluation leaves untouched."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cudal1_ray.evaluation import Verdict
from cudal1_ray.learning import AlgorithmConfig
from cudal1_ray.rewards import RewardsConfig, RewardSmoother
from cudal1_ray.training.reinforcement import policy_sequences

STEADY, SCATTERED = (2.0,) * 7, (1.0, 3.0) * 4


def judged(group: int, speedup: float, buckets: tuple[float, ...] = STEADY) -> SimpleNamespace:
    status = "accepted" if speedup else "rejected"
    return SimpleNamespace(
        group=group,
        prompt=SimpleNamespace(problem_id="p"),
        prompt_token_ids=(1, 2),
        completion=SimpleNamespace(token_ids=(3, 4), logprobs=(-0.1, -0.2), policy_version=0),
        verdict=Verdict("p", status, speedup=speedup, credited_speedup=speedup, bucket_speedups=buckets),
    )


def test_a_void_evaluation_is_neither_rewarded_nor_held_against_anybody():
    config, algorithm = RewardsConfig(robust=True, smoothing=False), AlgorithmConfig()
    others = [judged(0, 2.0), judged(0, 0.0), judged(1, 2.0, (3.0,) * 7), judged(1, 2.0)]
    rewards, advantages, sequences = policy_sequences(others, config, algorithm, None)
    assert rewards == [2.0, 0.0, 3.0, 2.0] and len(sequences) == 4
    with_void = [others[0], judged(0, 2.0, SCATTERED), *others[1:], judged(1, 2.0, ())]
    same, with_zeros, unchanged = policy_sequences(with_void, config, algorithm, None)
    assert same == [2.0, None, 0.0, 3.0, 2.0, None]
    assert with_zeros == pytest.approx([advantages[0], 0.0, *advantages[1:], 0.0])
    assert [one.advantage for one in unchanged] == [one.advantage for one in sequences]


def test_the_running_statistics_do_not_know_of_it_either():
    config, algorithm = RewardsConfig(robust=True, smoothing=True), AlgorithmConfig(name="reinforce")
    batch, void = [judged(0, 2.0), judged(0, 0.0)], judged(0, 2.0, SCATTERED)
    known, told = RewardSmoother(config), RewardSmoother(config)
    _, without, _ = policy_sequences(batch, config, algorithm, known)
    _, with_void, _ = policy_sequences([void, *batch], config, algorithm, told)
    assert with_void == [0.0, *without]
    assert policy_sequences([void], config, algorithm, told) == ([None], [0.0], [])
