"""Runs of the paper's table, made without training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.paper.tiny_table import write_table


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a table's folder with two arms done for two seeds."""
    return write_table(tmp_path / "runs")
