"""Advantages: how much better a completion was than one expects of its prompt. Pure numpy, one number a completion.

`rewards` is [C] float, `groups` is [C] int: completions of one prompt share a number. All functions return [C] float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

AdvantageFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]

# Rewards of one group that differ by less are the same reward: dividing by their deviation would amplify noise.
SAME_REWARD = 1e-6
# A reward that is its group's mean, as a copy's may be, differs from it by rounding: for rewards below 100 by less.
ROUNDING = 1e-12


def group_normalised(rewards: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return (r - mean) / standard deviation within the group (GRPO: arXiv 2402.03300, section 4.1.2; CUDA-L1, eq. 4).

    A group whose rewards are all the same teaches nothing: its advantages are 0.
    """
    mean, deviation, _ = _moments(rewards, groups)
    same = deviation < SAME_REWARD
    return np.where(same, 0.0, _difference(rewards, mean) / np.where(same, 1.0, deviation))


def group_centred(rewards: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return r - mean within the group (Dr. GRPO: arXiv 2503.20783, section 3.2): all prompts weigh the same."""
    mean, deviation, _ = _moments(rewards, groups)
    return np.where(deviation < SAME_REWARD, 0.0, _difference(rewards, mean))


def leave_one_out(rewards: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return r - mean of the group's *other* completions (RLOO: arXiv 2402.14740, section 3.3), 0 without any."""
    _, _, size = _moments(rewards, groups)
    return group_centred(rewards, groups) * size / np.maximum(size - 1, 1)


def reward_itself(rewards: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the reward, without any baseline (CUDA-L1's self-supervised stage, arXiv 2507.14111, section 2.2)."""
    return rewards.copy()


def _difference(rewards: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return r - mean; exactly 0 where rounding alone makes a difference: such a completion teaches nothing."""
    difference = rewards - mean
    return np.where(np.abs(difference) < ROUNDING, 0.0, difference)


def _moments(rewards: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, standard deviation (of the population) and size of each completion's group, [C] each."""
    _, index, size = np.unique(groups, return_inverse=True, return_counts=True)
    mean = np.bincount(index, weights=rewards) / size
    variance = np.bincount(index, weights=(rewards - mean[index]) ** 2) / size
    return mean[index], np.sqrt(variance)[index], size[index]


def as_arrays(rewards: Sequence[float], groups: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return rewards and groups as arrays of one length.

    Raises:
        ValueError: when their lengths differ, or a reward is not finite.
    """
    values, keys = np.asarray(rewards, dtype=np.float64), np.asarray(groups, dtype=np.int64)
    if values.shape != keys.shape or values.ndim != 1:
        raise ValueError(f"{values.shape} rewards for {keys.shape} groups: one of each per completion")
    if not np.isfinite(values).all():
        raise ValueError(f"reward {values[~np.isfinite(values)][0]} is not finite")
    return values, keys
