"""The signal in a step's completions: the figures that show first whether a policy can learn from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from cudal1_ray.training.reinforcement import informative_groups
from cudal1_ray.training.sampling import EvaluatedSample


def signal_metrics(
    samples: Sequence[EvaluatedSample], rewards: Sequence[float | None], advantages: Sequence[float]
) -> dict[str, float]:
    """Return the figures of one step; none without completions.

    groups, informative_groups: prompts asked, and those with completions that differ in their advantage.
    reward_mean, reward_std: over completions that were rewarded; void_evaluations: how many were not.
    completion_tokens_mean, completion_tokens_max; truncated_share: completions cut at their token limit.
    own_kernel_share: completions that are right with a kernel of their own. copy_rate: accepted completions that are
    one of the exemplars shown. analysis_share: completions with a performance analysis.
    reasons/<name>: share of completions rejected for it.
    """
    if not samples:
        return {}
    count = len(samples)
    lengths = [len(j.completion.token_ids) for j in samples]
    accepted = [j for j in samples if j.verdict.accepted]
    counted = [reward for reward in rewards if reward is not None]
    groups = [j.group for j in samples]
    figures = {
        "groups": float(len(set(groups))),
        "informative_groups": float(len(informative_groups(groups, advantages))),
        "void_evaluations": float(count - len(counted)),
        "completion_tokens_mean": sum(lengths) / count,
        "completion_tokens_max": float(max(lengths)),
        "truncated_share": sum(j.completion.finish_reason == "length" for j in samples) / count,
        "own_kernel_share": sum(j.verdict.own_kernel for j in accepted) / count,
        "analysis_share": sum(bool(j.answer.analysis) for j in samples) / count,
    }
    if counted:
        mean = sum(counted) / len(counted)
        figures["reward_mean"] = mean
        figures["reward_std"] = math.sqrt(sum((reward - mean) ** 2 for reward in counted) / len(counted))
    if accepted:
        figures["copy_rate"] = sum(j.copied for j in accepted) / len(accepted)
    reasons = Counter(reason for j in samples for reason in set(j.verdict.reasons))
    return figures | {f"reasons/{reason}": number / count for reason, number in reasons.items()}
