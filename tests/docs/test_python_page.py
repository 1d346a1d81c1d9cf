"""The Python code of docs/python.md runs as printed, one block after the other, beside the files that it names."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cudal1_ray import ExemplarBuffer, config
from tests.measured_once import MEASURED_ONCE

pytestmark = pytest.mark.usefixtures("warm_server")
ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)


@pytest.fixture
def coarse(monkeypatch):
    """Let the page's evaluations measure coarsely: it states no speedup."""
    load, further = config.load_config, ["evaluation.timing.budget_s=0.3", *MEASURED_ONCE]
    monkeypatch.setattr(config, "load_config", lambda overrides: load([*overrides, *further]))


@pytest.mark.usefixtures("coarse")
def test_code_when_run_as_printed_gives_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("candidate.py", "problem.py"):
        shutil.copyfile(ROOT / "examples" / name, name)
    ExemplarBuffer.open("runs/demo/exemplars", create=True).save()
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(block, names)
    assert len(BLOCKS) == 4 and names["verdict"].accepted
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("accepted ") and last == "0"
    with names["cudal1_ray"].Evaluator(names["cudal1_ray"].evaluation_config("cpu")) as evaluator:
        rewards = names["speedup_rewards"](evaluator, names["problem"], ["no code at all"])
    assert rewards == [0.0]
