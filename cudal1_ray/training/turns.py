"""Further turns: a candidate that failed or is not faster comes back with what the evaluator found, and is asked again.

Kevin-32B (arXiv 2507.11948) trains on every turn of a trajectory as a sample of its own, credited for what it leads to
with a discount of 0.4 a turn. The paper sums the discounted scores of later turns; here a turn is worth the best that
comes of it, max(r_t, gamma * credit_t+1), so that two mediocre turns are never worth more than a good one.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1_ray.exemplars import Exemplar, Selection
from cudal1_ray.training.sampling import EvaluatedSample

# A candidate is asked again unless it is faster than this: 1.01 is where the paper's tables begin to count.
FAST_ENOUGH = 1.01


def worth_another_turn(sample: EvaluatedSample) -> bool:
    """Return whether a completion holds a candidate that failed honestly, or that is right and not faster.

    A cheat is not asked again: its answer to what the evaluator found would be a better disguise.
    """
    verdict = sample.verdict
    if sample.answer.code is None:
        return False
    return verdict.credited_speedup <= FAST_ENOUGH if verdict.accepted else verdict.kind != "hack"


def as_shown(sample: EvaluatedSample) -> Selection:
    """Return the candidate as the one exemplar of the next turn's prompt, with the evaluator's finding or its time."""
    verdict = sample.verdict
    detail = verdict.detail
    if verdict.accepted:
        detail = f"right; {verdict.runtime_ms:.4g} ms a call, the reference takes {verdict.reference_ms:.4g} ms"
    attempt = Exemplar.new(
        sample.prompt.problem_id,
        sample.answer.code or "",
        verdict.credited_speedup,
        parent_ids=sample.prompt.exemplar_ids,
        reasons=verdict.reasons,
        detail=detail,
    )
    return Selection((attempt,), (1.0,), "further_turn")


def turn_credits(
    samples: Sequence[EvaluatedSample], rewards: Sequence[float | None], discount: float
) -> list[float | None]:
    """Return the rewards with each turn's raised to `discount` times the credit of the turn that revised it.

    Args:
        rewards: one per completion; of a void evaluation None. It stays None, and passes nothing on.
    """
    credit = {(j.group, j.index): reward for j, reward in zip(samples, rewards, strict=True)}
    for j in sorted(samples, key=lambda sample: -sample.turn):
        own, before = credit[j.group, j.index], credit.get(j.revises) if j.revises else None
        if own is not None and before is not None:
            credit[j.revises] = max(before, discount * own)
    return [credit[j.group, j.index] for j in samples]
