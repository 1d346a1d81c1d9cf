"""One evaluator for all tests of a kind: starting it costs a second, a candidate a tenth of one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from evaluator_settings import quick_config  # noqa: E402

from cudal1_ray.evaluation import Evaluator  # noqa: E402


@pytest.fixture(scope="session")
def evaluator():
    with Evaluator(quick_config()) as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def ungated():
    """Without the static gate, measured whatever operators run: everything else must hold alone."""
    config = quick_config()
    config.check.static_gate = False
    config.rules.same_operations = "measure"
    config.limits.load_timeout_s = 3.0
    with Evaluator(config) as evaluator:
        yield evaluator
