"""A complete run, as records without a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import write_run


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "complete", problems=12, samples=4)
