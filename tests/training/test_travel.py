"""A run with adapters that is stopped, packed, continued from another place, prolonged, and started from: all real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.cli import main
from cudal1_ray.learning import PolicyConfig, build_policy, save_policy
from cudal1_ray.learning.adapter_files import load_adapter
from cudal1_ray.problems import load_corpus
from tests.measured_once import MEASURED_ONCE
from tests.training.test_runs import finish, rows, start, wait_for_step

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(2400)]
ADAPTED = [
    "policy=huggingface",
    "recipe=my_problems_cpu",
    "problems=bundled",
    "prompting=compact",
    "prompting.max_prompt_tokens=1120",
    "rollout.max_model_len=1344",
    "rollout.kv_cache_gib=0.2",
    "rewards=log_speedup",
    "policy.dtype=float32",
    "policy.lora_rank=4",
    "policy.gradient_checkpointing=false",
    "stage=contrastive",
    "contrastive.learning_rate=1e-3",
    "checkpoint.every_steps=10",
    "assessment.enabled=false",
    "assessment.samples_per_problem=1",
    "assessment.problems_during=1",
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "policy"
    config = PolicyConfig(
        kind="scratch", hidden_size=96, layers=2, heads=3, intermediate_size=192, vocab_size=600, max_position=1536
    )
    save_policy(*build_policy(config, [entry.code for entry in load_corpus()], seed=0), folder)
    return folder


def test_run_when_packed_goes_on_elsewhere_longer_and_as_the_start_of_another(policy, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    # In bfloat16 the engine serves adapters as adapters, for which it generates at a third of the speed; later runs are
    # in fp32, where they are merged.
    served = "rollout.dtype=bfloat16"
    process = start(here, *ADAPTED, f"policy.path={policy}", "contrastive.steps=3", served, process_group=0)
    wait_for_step(here, "contrastive", 1, process)
    os.killpg(process.pid, signal.SIGTERM)  # as `timeout` does
    output = finish(process)  # exit code 0
    assert "SIGTERM: ending after step" in output and "To continue: cudal1 train name=run" in output
    assert "merged into the engine" not in output
    (stopped,) = (here / "run" / "checkpoints").iterdir()
    assert stopped.name in ("contrastive-000001", "contrastive-000002")  # every_steps is 10: it was made for the stop
    assert (stopped / "adapter" / "adapter_config.json").is_file()

    assert main(["pack", str(here / "run"), str(tmp_path / "run.pack"), "--limit-mib", "8", "--split-mib", "1"]) == 0
    assert main(["unpack", *map(str, sorted(tmp_path.glob("run.pack.*"))), "--to", str(there / "run")]) == 0
    shutil.rmtree(there / "run" / "checkpoints" / stopped.name / "learner" / "deepspeed", ignore_errors=True)
    shutil.rmtree(here)
    moved = policy.with_name("moved")
    shutil.copytree(policy, moved)
    adapted = [*ADAPTED, f"policy.path={moved}"]
    output = finish(start(there, *adapted, "contrastive.steps=4", "assessment.every_steps=3"))  # longer
    assert f"continuing from {there}" in output and "it starts anew" in output  # the optimiser was left out
    assert [row["step"] for row in rows(there / "run" / "metrics.jsonl")] == [1, 2, 3, 4]
    looks = rows(there / "run" / "assessments_during.jsonl")
    assert {row["split"] for row in looks} == {"train", "held_out"} and {row["step"] for row in looks} == {3}

    last = there / "run" / "checkpoints" / "contrastive-final"
    control = ["name=control", f"init_from={there / 'run'}", "contrastive.steps=1", "contrastive.learning_rate=0"]
    output = finish(start(there, *adapted, *control, "rollout=transformers"))  # one step: up sooner than vLLM
    assert f"starting from {last}" in output
    after = load_adapter(there / "control" / "checkpoints" / "contrastive-final" / "adapter")
    assert all(tensor.equal(after[key]) for key, tensor in load_adapter(last / "adapter").items())

    arguments = ["assess", str(there / "run"), "--policy", "base", "--policy", "latest", "--split", "held_out"]
    command = [sys.executable, "-m", "cudal1_ray.cli", *arguments, "--samples", "1"]
    before = (there / "run" / "metrics.jsonl").read_text()
    wide = {**os.environ, "COLUMNS": "200"}  # a table's cells stay on one line
    first, second = (subprocess.run(command, capture_output=True, text=True, timeout=900, env=wide) for _ in range(2))
    assert first.returncode == 0 and "actors started" in first.stdout, first.stdout + first.stderr
    assert second.returncode == 0 and "actors started" not in second.stdout and " 1 held-out" in second.stdout
    assessed = rows(there / "run" / "assessments_asked.jsonl")
    assert {row["policy"] for row in assessed} == {"base", "contrastive-final"} and len(assessed) == 2
    assert (there / "run" / "metrics.jsonl").read_text() == before


def test_control_when_stage_3_started_from_the_base_or_a_travelled_adapter_is_in_the_report(policy, tmp_path):
    entries = [e for e in load_corpus() if "swish_chain" in e.problem_id and "wrong" not in e.entry_id]
    seeds = {
        "problem": [e.problem_id for e in entries],
        "code": [e.code for e in entries],
        "speedup": [1.5] * len(entries),
    }
    pq.write_table(pa.table(seeds), tmp_path / "seeds.parquet")
    overrides = [*ADAPTED, f"policy.path={policy}", "rollout=transformers", "problems.families=[swish_chain]"]
    overrides += ["assessment.enabled=true", "assessment.problems=1", "assessment.initial=false"]
    overrides += ["contrastive.steps=1", "contrastive.problems_per_step=1", "contrastive.group_size=2", *MEASURED_ONCE]
    overrides += [f"exemplars.seed_from={tmp_path / 'seeds.parquet'}", "prompting.max_completion_tokens=64"]
    overrides += ["contrastive.rehearsed_pairs=0"]

    def stages_of(name: str, *more: str) -> set[str]:
        output = finish(start(tmp_path, *overrides, f"name={name}", *more))
        assert "no control" not in output
        summary = json.loads((tmp_path / name / "report" / "summary.json").read_text())
        return {row["stage"] for row in rows(tmp_path / name / "assessments.jsonl")} & set(summary["stages"])

    expected = {"contrastive", "contrastive_without_exemplars", "start_with_exemplars"}
    assert stages_of("base") == expected
    last, travelled = tmp_path / "base/checkpoints/contrastive-final", tmp_path / "other/checkpoints/contrastive-final"
    for part in ("state", "adapter"):  # what `benchmarks.paper` takes to the next machine
        shutil.copytree(last / part, travelled / part)
    assert stages_of("further", f"init_from={travelled}") == expected
