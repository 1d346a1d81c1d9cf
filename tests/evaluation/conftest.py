"""One evaluator for all tests of a kind: starting it costs a second, a candidate a tenth of one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from evaluator_settings import least_config, ungated_config  # noqa: E402

from cudal1_ray.evaluation import Evaluator  # noqa: E402
from cudal1_ray.evaluation.correctness import trials  # noqa: E402


@pytest.fixture(scope="session")
def evaluator():
    """Yield an evaluator for tests of right and wrong: it measures least."""
    with Evaluator(least_config()) as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def ungated():
    """Yield an evaluator without the static gate: every other check must hold alone."""
    with Evaluator(ungated_config()) as evaluator:
        yield evaluator


@pytest.fixture
def brief_ending(monkeypatch) -> None:
    """Wait only one second, not five, for processes that candidates leave behind on purpose and that never end."""
    monkeypatch.setattr(trials, "_ENDING_S", 1.0)
