"""Advantages against numbers worked out by hand, and the registry that names them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1_ray.errors import UserError
from cudal1_ray.learning import Algorithm, AlgorithmConfig, compute_advantages, register_algorithm
from cudal1_ray.learning.advantages import group_normalised

REWARDS, GROUPS = [1.0, 2.0, 3.0, 7.0, 7.0, 5.0], [4, 4, 4, 9, 9, 2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", [-math.sqrt(1.5), 0, math.sqrt(1.5), 0, 0, 0]),
        ("gspo", [-math.sqrt(1.5), 0, math.sqrt(1.5), 0, 0, 0]),
        ("dr_grpo", [-1, 0, 1, 0, 0, 0]),
        ("grpo_leave_one_out", [1 - 2.5, 0, 3 - 1.5, 0, 0, 0]),
        ("reinforce", REWARDS),
    ],
)
def test_advantages_when_computed_by_hand_are_these(name, expected):
    np.testing.assert_allclose(compute_advantages(REWARDS, GROUPS, AlgorithmConfig(name=name)), expected, atol=1e-12)


def test_advantages_when_groups_are_interleaved_keep_them_apart():
    values = compute_advantages([1.0, 10.0, 3.0, 30.0], [0, 1, 0, 1], AlgorithmConfig())
    np.testing.assert_allclose(values, [-1, -1, 1, 1])


def test_advantages_when_rewards_differ_by_rounding_are_zero():
    same = [0.1 + 0.2, 0.3, 0.3]
    assert same[0] != same[1]
    assert compute_advantages(same, [0, 0, 0], AlgorithmConfig()).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "grpo_leave_one_out"])
def test_advantage_when_a_reward_is_the_mean_of_the_others_is_exactly_zero(name):
    others = [0.05, 0.1, 0.1, 0.2, 0.3]
    mean = sum(others) / len(others)
    assert np.mean([*others, mean, mean, mean]) != mean
    values = compute_advantages([*others, mean, mean, mean], [0] * 8, AlgorithmConfig(name=name))
    assert values[5:].tolist() == [0, 0, 0] and all(values[:5])


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-100, 100)), min_size=1, max_size=40))
def test_group_advantages_when_normalised_have_mean_zero_and_deviation_one(pairs):
    groups, rewards = np.array([g for g, _ in pairs]), np.array([r for _, r in pairs])
    values = group_normalised(rewards, groups)
    for group in set(groups.tolist()):
        mine = values[groups == group]
        assert abs(mine.mean()) < 1e-6
        assert np.all(mine == 0) or abs(mine.std() - 1) < 1e-6


def test_advantages_when_given_a_mistake_name_it():
    with pytest.raises(UserError, match="algorithm.name='ppo'.*grpo"):
        compute_advantages([1.0], [0], AlgorithmConfig(name="ppo"))
    with pytest.raises(ValueError, match="nan"):
        compute_advantages([math.nan], [0], AlgorithmConfig())
    with pytest.raises(ValueError, match="groups"):
        compute_advantages([1.0, 2.0], [0], AlgorithmConfig())


def test_algorithm_when_registered_is_selected_by_name():
    register_algorithm("signs", Algorithm(lambda rewards, groups: np.sign(rewards)))
    assert compute_advantages([-3.0, 2.0], [0, 0], AlgorithmConfig(name="signs")).tolist() == [-1, 1]
