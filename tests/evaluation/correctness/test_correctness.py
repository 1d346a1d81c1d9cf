"""Which trials a candidate is asked, and when it may be timed."""

from __future__ import annotations

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem, renamed

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.correctness.trials import Correctness
from cudal1_ray.evaluation.sharing.turns import Turns

pytestmark = pytest.mark.usefixtures("warm_server")

REFERENCE = renamed("chain")
OTHER = REFERENCE.replace("torch.relu(self.a(x))", "self.a(x).relu_()")
WRONG_ELSEWHERE = ("return self.norm(", "return (1 + (x.shape[0] != 192)) * self.norm(")


@pytest.fixture(scope="module")
def lazy():
    config = quick_config()
    config.check.lazy = True
    with Evaluator(config) as evaluator:
        yield evaluator


@pytest.fixture
def steps(monkeypatch):
    """Return the candidates' rounds of trials and exclusive turns, in order."""
    steps: list[str] = []

    def record(owner, name):
        function = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **kwargs: steps.append(name) or function(*args, **kwargs))

    record(Correctness, "first")
    record(Correctness, "others")
    record(Turns, "alone")
    return steps


def test_lazy_trials_when_operations_are_the_reference_s_stop_after_the_first(lazy, steps):
    verdict = lazy.evaluate(problem("chain"), REFERENCE)
    assert verdict.accepted and verdict.credited_speedup == 1.0 and "same_operations" in verdict.flags
    assert steps == ["first"]


def test_lazy_trials_when_operations_differ_are_all_asked_before_timing(lazy, steps):
    assert lazy.evaluate(problem("chain"), OTHER).accepted
    assert steps[:3] == ["first", "others", "alone"]


def test_lazy_trials_when_another_batch_size_is_wrong_refuse_before_timing(lazy, steps):
    verdict = lazy.evaluate(problem("chain"), OTHER.replace(*WRONG_ELSEWHERE))
    assert verdict.reasons == ("shape_overfit",)
    assert steps == ["first", "others"]


def test_all_trials_when_operations_are_the_reference_s_are_asked_by_default(evaluator, steps):
    verdict = evaluator.evaluate(problem("chain"), REFERENCE)
    assert verdict.accepted and verdict.credited_speedup == 1.0
    assert steps == ["first", "others"]
