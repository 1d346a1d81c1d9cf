"""`cudal1 optimize` without a server: vLLM and the evaluator in this process, on a policy that knows one answer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.serving.conftest import FAST, MODEL_LEN, make_skilled_model, problem

pytestmark = pytest.mark.long


def test_optimize_when_run_without_a_server_saves_a_faster_module_beside_it(tmp_path):
    pytest.importorskip("vllm")
    model = make_skilled_model(tmp_path / "tiny")
    (tmp_path / "module.py").write_text(problem().source)
    settings = [f"policy={model.path}", f"rollout.max_model_len={MODEL_LEN}", "rollout.kv_cache_gib=0.05"]
    settings += ["optimize.rounds=1", "optimize.samples_per_round=2", "optimize.temperature=0.1"]
    settings += ["optimize.baselines=[eager,tuned_eager,cuda_graph]", "evaluation.required_sandbox=seccomp"]
    command = [sys.executable, "-m", "cudal1_ray.cli", "optimize", str(tmp_path / "module.py"), *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=dict(os.environ), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert (tmp_path / "module_fast.py").read_text().strip() == FAST.strip()
    for part in ("round 1/1", "measured again", "against eager on", "tuned_eager", "needs device cuda", "ModelNew"):
        assert part in done.stdout, done.stdout
