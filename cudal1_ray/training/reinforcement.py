"""From judged completions to what the learner trains on: rewards, advantages, sequences. Shared by stages 2 and 3."""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ray.learning import AlgorithmConfig, TrainingSequence, compute_advantages
from cudal1_ray.rewards import RewardsConfig, RewardSmoother, verdict_reward
from cudal1_ray.training.sampling import Judged


def within_bound(judged: Sequence[Judged], policy_version: int, staleness: int) -> list[Judged]:
    """The completions on which a learner at `policy_version` may train: written at most `staleness` versions before."""
    return [j for j in judged if policy_version - j.completion.policy_version <= staleness]


def policy_sequences(
    judged: Sequence[Judged],
    rewards_config: RewardsConfig,
    algorithm: AlgorithmConfig,
    smoother: RewardSmoother | None,
) -> tuple[list[float | None], list[float], list[TrainingSequence]]:
    """Rewards and advantages of a batch, and the sequences with a non-zero advantage.

    Args:
        judged: completions with verdicts; those of one prompt share `group`.
        smoother: running statistics for reward smoothing (paper, section 2.3.4), updated in place; None leaves rewards
            as they are.

    Returns:
        (rewards, advantages, sequences): the first two one per completion, in order. Of a void evaluation the reward is
        None and the advantage 0.0: neither its group nor the statistics know of it.
    """
    rewards = [verdict_reward(j.verdict, rewards_config) for j in judged]
    counted = [(j, reward) for j, reward in zip(judged, rewards, strict=True) if reward is not None]
    smoothed = [reward for _, reward in counted]
    if smoother is not None and rewards_config.smoothing:
        smoothed = smoother.smooth(smoothed, [j.prompt.problem_id for j, _ in counted])
    of_counted = iter(compute_advantages(smoothed, [j.group for j, _ in counted], algorithm) if counted else ())
    advantages = [0.0 if reward is None else float(next(of_counted)) for reward in rewards]
    sequences = [
        TrainingSequence(
            prompt_token_ids=j.prompt_token_ids,
            completion_token_ids=j.completion.token_ids,
            sampling_logprobs=j.completion.logprobs,
            advantage=advantage,
            policy_version=j.completion.policy_version,
        )
        for j, advantage in zip(judged, advantages, strict=True)
        if advantage != 0.0 and j.completion.token_ids
    ]
    return rewards, advantages, sequences
