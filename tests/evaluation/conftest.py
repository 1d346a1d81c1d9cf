"""One evaluator for all tests of a kind: starting it costs a second, a candidate a tenth of one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cudal1_ray.evaluation import EvaluationConfig, Evaluator  # noqa: E402


def quick_config(**changes) -> EvaluationConfig:
    """Small limits and a coarse measurement: these tests are about verdicts, not about the last percent."""
    config = EvaluationConfig(**changes)
    config.limits.load_timeout_s = 20.0
    config.limits.first_call_timeout_s = 1.5
    config.limits.call_timeout_s = 1.5
    config.limits.memory_mib = 1024
    config.timing.half_width = 0.06
    config.timing.budget_s = 0.4
    config.timing.min_pairs = 6
    return config


@pytest.fixture(scope="session")
def evaluator():
    with Evaluator(quick_config()) as made:
        yield made


@pytest.fixture(scope="session")
def ungated():
    """Without the static gate: everything else must hold alone."""
    config = quick_config()
    config.check.static_gate = False
    config.limits.load_timeout_s = 3.0
    with Evaluator(config) as made:
        yield made
