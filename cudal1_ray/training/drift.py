"""Whether engine and learner, which should hold the same weights, agree on the probability of a token.

Where every step is on-policy the learner finds out by itself: it compares the log-probabilities that came with the
completions with its own. Completions of an older policy differ for another reason, that policies differ. So then, and
in steps that teach nothing, some sequences are scored by both sides right after the weights were sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cudal1_ray.learning import TrainingSequence
from cudal1_ray.training.sampling import EvaluatedSample

if TYPE_CHECKING:
    from cudal1_ray.training.crew import Crew

PROBES = 4
# Tokens of prompt and completion together: an engine makes all their logits at once.
PROBE_TOKENS = 1024


def probes(samples: Sequence[EvaluatedSample]) -> list[TrainingSequence]:
    """Return the shortest completions of a batch, for a check that costs little; those that are too long for one are
    cut.
    """
    sequences = [
        TrainingSequence(j.prompt_token_ids, j.completion.token_ids[: PROBE_TOKENS - len(j.prompt_token_ids)])
        for j in samples
        if j.completion.token_ids and len(j.prompt_token_ids) < PROBE_TOKENS
    ]
    return sorted(sequences, key=len)[:PROBES]


def probe_drift(crew: Crew, sequences: Sequence[TrainingSequence]) -> dict[str, float]:
    """Compare an engine, which ends its turn first and may have completions outstanding, with the idle learner.

    Returns:
        drift_mean_abs and drift_max_abs, |log p (engine) - log p (learner)| per token at temperature 1, nats; and
        drift_alarm, 1 when the mean is outside `rollout.drift_band`, else 0. Nothing without sequences.
    """
    if not sequences:
        return {}
    pairs = [(s.prompt_token_ids, s.completion_token_ids) for s in sequences]
    theirs = crew.rollouts.score(pairs)
    if not theirs:  # the engine that was asked died
        return {}
    apart = np.abs(np.concatenate(theirs) - np.concatenate(crew.learner.score(sequences)))
    band = crew.config.rollout.drift_band
    mean = float(apart.mean())
    return {"drift_mean_abs": mean, "drift_max_abs": float(apart.max()), "drift_alarm": float(mean > band)}
