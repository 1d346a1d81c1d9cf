"""Scoring functions for verl's reward managers.

verl runs reward functions in several worker processes, so the device belongs to a server: start `cudal1 serve` on the
machine that measures, and name it in the environment of verl's workers: CUDAL1_EVALUATOR_URL, CUDAL1_EVALUATOR_KEY.
The data set's `ground_truth` is the text of a KernelBench file.

    reward.custom_reward_function.path=pkg://cudal1_ray.integrations.verl
    reward.custom_reward_function.name=compute_score            # of the default manager, or
    reward.custom_reward_function.name=compute_scores           # with reward_manager=batch
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.integrations.rewards import CompletionScorer, Score

URL, KEY = "CUDAL1_EVALUATOR_URL", "CUDAL1_EVALUATOR_KEY"


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[str],
    extra_infos: Sequence[Any],
    **arguments: Any,
) -> list[dict[str, Any]]:
    """Return a dictionary for each completion: `score` (0.0 for a void evaluation), `void`, `speedup`, `accepted`,
    `own_kernel` and `reason`.

    Args:
        data_sources: ignored; verl passes them.
        solution_strs: the completions.
        ground_truths: the problem of each, as a KernelBench file's text.
        extra_infos: ignored.

    Raises:
        UserError: without CUDAL1_EVALUATOR_URL, or when that server does not answer.
    """
    return [_as_dict(score) for score in _scorer().score(ground_truths, solution_strs)]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **arguments: Any
) -> dict[str, Any]:
    """Return `compute_scores` of one completion."""
    return compute_scores([data_source], [solution_str], [ground_truth], [extra_info])[0]


@functools.cache
def _scorer() -> CompletionScorer:
    url = os.environ.get(URL, "")
    if not url:
        raise UserError(f"{URL}: not set; give the address of a `cudal1 serve`, such as http://gpu-host:8000")
    return CompletionScorer(url, os.environ.get(KEY, ""))


def _as_dict(score: Score) -> dict[str, Any]:
    return {"score": score.reward or 0.0, "void": float(score.reward is None), **score.figures()}
