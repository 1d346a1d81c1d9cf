"""The Python code of docs/integrations.md runs as printed, with a small policy, and on this machine's CPU."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.conftest import SETTINGS, scorer  # noqa: F401 (a fixture)
from tests.integrations.evaluate_server import EvaluateServer
from tests.rollout.conftest import make_tiny_model

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text()


def block_after(heading: str) -> str:
    """Return the first Python block below a heading of the page."""
    return re.search(rf"^## {heading}\n.*?^```python\n(.*?)^```", PAGE, re.M | re.S)[1]


def with_replaced(code: str, replacements: dict[str, str]) -> str:
    for text, other in replacements.items():
        assert text in code
        code = code.replace(text, other)
    return code


def test_http_example_when_run_has_the_verdict(tmp_path, monkeypatch, scorer):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    for name in ("candidate.py", "problem.py"):
        shutil.copyfile(ROOT / "examples" / name, name)
    names: dict[str, Any] = {}
    with EvaluateServer(scorer.evaluator) as server:
        exec(with_replaced(block_after("HTTP"), {"http://127.0.0.1:8000": server.url}), names)
    assert names["verdict"]["status"] == "accepted" and names["verdict"]["speedup"] > 0


@pytest.mark.slow
def test_trl_example_when_run_takes_a_step_and_logs_its_reward(tmp_path, monkeypatch):
    pytest.importorskip("trl")
    pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    policy = make_tiny_model(tmp_path / "policy", seed=1)
    cpu = "max_steps=1, logging_steps=1, per_device_train_batch_size=2, num_generations=2, use_cpu=True, bf16=False, "
    cpu += "report_to=[], "
    replacements = {
        "Qwen/Qwen2.5-Coder-1.5B-Instruct": policy.path,
        'device="cuda"': f'device="cpu", settings={SETTINGS!r}',
        "max_completion_length=2048": cpu + "max_completion_length=8",
    }
    exec(with_replaced(block_after("TRL"), replacements), {})
    state = json.loads((tmp_path / "out" / "checkpoint-1" / "trainer_state.json").read_text())
    logged = [entry for entry in state["log_history"] if "rewards/kernel_reward/mean" in entry]
    assert logged and logged[0]["rewards/kernel_reward/mean"] == 0.0  # a random policy writes no candidate
