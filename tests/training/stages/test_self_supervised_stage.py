"""Stage 2 with an algorithm that is not its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cudal1_ray.config import load_config
from cudal1_ray.training.stages import self_supervised


@pytest.mark.parametrize(
    ("kl_coef", "done", "brought", "calls"),
    [
        (0.1, 0, False, ["set"]),
        (0.1, 0, True, ["set"]),
        (0.1, 1, True, []),
        (0.1, 1, False, ["note", "set"]),
        (0.0, 0, False, []),
    ],
)
def test_stage_when_its_algorithm_has_a_kl_term_sets_the_reference_policy(monkeypatch, kl_coef, done, brought, calls):
    calls_so_far = []
    learner = SimpleNamespace(
        start_stage=lambda *rates, **settings: None,
        has_reference_policy=lambda: brought,
        set_reference_policy=lambda: calls_so_far.append("set"),
    )
    session = SimpleNamespace(
        config=load_config([f"self_supervised.algorithm.kl_coef={kl_coef}", "self_supervised.exemplar_prompts=false"]),
        crew=SimpleNamespace(learner=learner),
        progress=SimpleNamespace(stage=lambda *arguments: None, note=lambda text: calls_so_far.append("note")),
        steps_done=lambda stage: done,
        ensure_published=lambda: None,
    )
    monkeypatch.setattr(self_supervised, "Pipeline", lambda session, stage: SimpleNamespace(run=lambda done: None))
    self_supervised.run_self_supervised(session)
    assert calls_so_far == calls
