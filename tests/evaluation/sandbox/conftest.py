"""Evaluators and fork servers of each level, which the tests of a file share."""

from __future__ import annotations

import os

import pytest
from evaluator_settings import least_config
from problems_for_tests import problem
from sandbox_attempts import HONEST, PROBE

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.host.handles import ForkServer


@pytest.fixture(scope="module")
def ungated_at():
    """Yield a function that returns an ungated evaluator of a level and settings; each has a secret of its own."""
    evaluators: dict[str, Evaluator] = {}

    def ungated(level: str, **settings: object) -> Evaluator:
        name = f"{level} {settings}"
        if name not in evaluators:
            config = least_config(sandbox=level, **settings)
            config.check.static_gate = False
            evaluators[name] = Evaluator(config)
        return evaluators[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_THE_EVALUATOR", "x")
        yield ungated
    for evaluator in evaluators.values():
        evaluator.close()


@pytest.fixture(scope="module")
def server_at(ungated_at):
    """Return a function that returns the running fork server of a level."""

    def server(level: str) -> ForkServer:
        evaluator = ungated_at(level)
        evaluator.sandbox_level()
        return evaluator._server

    return server


@pytest.fixture
def achieved(ungated_at):
    """Return which attempts of a candidate succeed at a level; assert that an honest one is accepted after it."""

    def evaluate(level: str, attempts: str, **settings: object) -> str:
        evaluator = ungated_at(level, **settings)
        values = {
            "home": os.path.expanduser("~"), "tests": os.path.abspath(__file__), "evaluator": os.getpid(),
            "project": __import__("cudal1_ray").__file__,
        }  # fmt: skip
        verdict = evaluator.evaluate(problem("chain"), PROBE.replace("{attempts}", attempts.format(**values)))
        after = evaluator.evaluate(problem("chain"), HONEST)
        assert after.accepted, after
        assert "achieved: " in verdict.detail, verdict
        return verdict.detail.split("achieved: ")[1].split(".")[0]

    return evaluate
