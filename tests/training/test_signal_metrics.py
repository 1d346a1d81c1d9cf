"""The figures of a step, counted by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cudal1_ray.evaluation import Verdict
from cudal1_ray.training.signal_metrics import signal_metrics


def evaluated_sample(group: int, reasons=(), tokens: int = 2, analysis: str = "", copied: bool = False, **fields):
    status = "rejected" if reasons else "accepted"
    return SimpleNamespace(
        group=group,
        completion=SimpleNamespace(token_ids=(1,) * tokens, finish_reason="length" if tokens > 5 else "stop"),
        answer=SimpleNamespace(analysis=analysis),
        verdict=Verdict("p", status, tuple(reasons), **fields),
        copied=copied,
    )


def test_signal_figures_when_a_step_ends_are_of_its_completions():
    batch = [
        evaluated_sample(0, own_kernel=True, analysis="faster because"),
        evaluated_sample(0, copied=True),
        evaluated_sample(1, ("unparsable",), tokens=6),
        evaluated_sample(1, ("evaluator_error",), own_kernel=True),
    ]
    figures = signal_metrics(batch, [1.0, 0.5, 0.0, None], [1.0, -1.0, 0.0, 0.0])
    assert figures == {
        "groups": 2,
        "informative_groups": 1,
        "void_evaluations": 1,
        "completion_tokens_mean": 3,
        "completion_tokens_max": 6,
        "truncated_share": 0.25,
        "own_kernel_share": 0.25,
        "analysis_share": 0.25,
        "reward_mean": 0.5,
        "reward_std": pytest.approx((0.5 / 3) ** 0.5),
        "copy_rate": 0.5,
        "reasons/unparsable": 0.25,
        "reasons/evaluator_error": 0.25,
    }


def test_signal_figures_when_a_step_has_no_completions_are_none():
    assert signal_metrics([], [], []) == {}
