"""From evaluated samples to what the learner trains on: rewards, advantages, sequences. Shared by stages 2 and 3."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from cudal1_ray.learning import AlgorithmConfig, TrainingSequence, compute_advantages
from cudal1_ray.rewards import RewardsConfig, RewardSmoother, reward_noise, verdict_reward
from cudal1_ray.training.sampling import EvaluatedSample
from cudal1_ray.training.turns import turn_credits

# A group is a tie when its rewards' standard deviation is below this many times what the measurement's noise explains.
# Of groups of 8 (4) candidates whose speedups differ by noise alone, 5% exceed sqrt(14.07 / 8) = 1.33 (sqrt(7.81 / 4) =
# 1.40): the 95% quantile of chi-squared with 7 (3) degrees of freedom.
TIE_DEVIATIONS = 1.4
# What a truncated completion loses with rewards.truncated=penalise. DAPO (arXiv 2503.14476, eq. 13) takes 1 where
# rewards are -1 and 1; here they begin at 0.
TRUNCATION_PENALTY = 0.5


def within_bound(samples: Sequence[EvaluatedSample], policy_version: int, staleness: int) -> list[EvaluatedSample]:
    """Return the completions written at most `staleness` versions before `policy_version`, the learner's."""
    return [j for j in samples if policy_version - j.completion.policy_version <= staleness]


def completion_reward(sample: EvaluatedSample, config: RewardsConfig) -> float | None:
    """Return the reward of a completion, None where nothing is to be learnt from it.

    That is its verdict's, except for truncated completions where `config.truncated` is mask (None) or penalise.
    """
    if sample.truncated and config.truncated == "mask":
        return None
    reward = verdict_reward(sample.verdict, config)
    if sample.truncated and config.truncated == "penalise" and reward is not None:
        return reward - TRUNCATION_PENALTY
    return reward


def policy_sequences(
    samples: Sequence[EvaluatedSample],
    rewards_config: RewardsConfig,
    algorithm: AlgorithmConfig,
    smoother: RewardSmoother | None,
    turn_discount: float = 0.0,
) -> tuple[list[float | None], list[float], list[TrainingSequence]]:
    """Return rewards and advantages of a batch, and the sequences with a non-zero advantage.

    Within each group, the algorithm compares the completions that copy no exemplar of their prompt. Rewards of theirs
    that differ by less than the measurement's noise become equal (`without_noise`). A copy has advantage 0: no reward
    for what was shown, and no push away from kernels like it either.

    Args:
        samples: completions with verdicts; those of one prompt share `group`.
        smoother: running statistics for reward smoothing (paper, section 2.3.4), updated in place; None leaves rewards
            as they are.
        turn_discount: what a turn is credited of the turn that revised it, see `turn_credits`.

    Returns:
        (rewards, advantages, sequences): the first two one per completion, in order; rewards as they were earned. Of a
        void evaluation the reward is None and the advantage 0.0: neither its group nor the statistics know of it.
    """
    rewards = [completion_reward(j, rewards_config) for j in samples]
    credits = turn_credits(samples, rewards, turn_discount) if turn_discount else rewards
    credits = [None if j.copied else credit for j, credit in zip(samples, credits, strict=True)]
    counted = [(j, credit) for j, credit in zip(samples, credits, strict=True) if credit is not None]
    groups = [j.group for j, _ in counted]
    noise = [reward_noise(j.verdict, rewards_config) for j, _ in counted]
    compared = without_noise([credit for _, credit in counted], groups, noise)
    if smoother is not None and rewards_config.smoothing:
        compared = smoother.smooth(compared, [j.prompt.problem_id for j, _ in counted])
    of_counted = iter(compute_advantages(compared, groups, algorithm) if counted else [])
    advantages = [0.0 if credit is None else float(next(of_counted)) for credit in credits]
    sequences = [
        TrainingSequence(
            prompt_token_ids=j.prompt_token_ids,
            completion_token_ids=j.completion.token_ids,
            sampling_logprobs=j.completion.logprobs,
            advantage=advantage,
            policy_version=j.completion.policy_version,
            group=j.group,
        )
        for j, advantage in zip(samples, advantages, strict=True)
        if advantage != 0.0 and j.completion.token_ids
    ]
    return rewards, advantages, sequences


def without_noise(rewards: Sequence[float], groups: Sequence[int], noise: Sequence[float]) -> list[float]:
    """Return the rewards, those of each group that is a tie all replaced by the group's mean.

    A group is a tie when the standard deviation of its rewards is below `TIE_DEVIATIONS` times the root mean square of
    their noise (standard deviations, one per reward).
    """
    members: dict[int, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    result = list(rewards)
    for places in members.values():
        values = [rewards[place] for place in places]
        mean = sum(values) / len(values)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
        explained = math.sqrt(sum(noise[place] ** 2 for place in places) / len(places))
        if deviation < TIE_DEVIATIONS * explained:
            for place in places:
                result[place] = mean
    return result


def informative_groups(groups: Sequence[int], advantages: Sequence[float]) -> set[int]:
    """Return the groups in which some completion has an advantage."""
    return {group for group, advantage in zip(groups, advantages, strict=True) if advantage != 0.0}
