"""A run with adapters that is stopped, packed, continued from another place, prolonged, and started from: all real."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from cudal1_ray.cli import main
from cudal1_ray.learning import PolicyConfig, build_policy, save_policy
from cudal1_ray.learning.adapter_files import load_adapter
from cudal1_ray.problems import load_corpus
from tests.training.test_runs import finish, rows, start, wait_for_step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
ADAPTED = [
    "policy=huggingface",
    "policy.dtype=float32",
    "policy.lora_rank=4",
    "policy.gradient_checkpointing=false",
    "stage=contrastive",
    "rollout.dtype=bfloat16",  # so that the engine serves adapters as adapters
    "contrastive.learning_rate=1e-3",
    "checkpoint.every_steps=10",
    "assessment.held_out=false",
    "assessment.samples_per_problem=1",
    "assessment.every_steps=1",
    "assessment.problems_during=1",
]


def drop(overrides: list[str], *keys: str) -> list[str]:
    return [one for one in overrides if one.partition("=")[0] not in keys]


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "policy"
    config = PolicyConfig(hidden_size=96, layers=2, heads=3, intermediate_size=192, vocab_size=600, max_position=1536)
    save_policy(*build_policy(config, [entry.code for entry in load_corpus()], seed=0), folder)
    return folder


def test_a_run_goes_on_elsewhere_longer_and_as_the_start_of_another(policy, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    process = start(here, *ADAPTED, f"policy.path={policy}", "contrastive.steps=200")
    wait_for_step(here, "contrastive", 1, process)
    process.send_signal(signal.SIGTERM)
    output = finish(process)  # exit code 0
    assert "SIGTERM: ending after step" in output and "To continue: cudal1 train name=run" in output
    assert "merged into the engine" not in output
    done = rows(here / "run" / "metrics.jsonl")[-1]["step"]
    checkpoint = here / "run" / "checkpoints" / f"contrastive-{done:06d}"
    assert (checkpoint / "adapter" / "adapter_config.json").is_file()
    assert {row["stage"] for row in rows(here / "run" / "assessments.jsonl")} == {"untrained"}

    assert main(["pack", str(here / "run"), str(tmp_path / "run.pack"), "--limit-mib", "8", "--split-mib", "1"]) == 0
    (there / "run").parent.mkdir()
    assert main(["unpack", *map(str, sorted(tmp_path.glob("run.pack.*"))), "--to", str(there / "run")]) == 0
    shutil.rmtree(there / "run" / "checkpoints" / checkpoint.name / "learner" / "deepspeed", ignore_errors=True)
    shutil.rmtree(here)
    moved = policy.with_name("moved")
    shutil.copytree(policy, moved)
    adapted = [*ADAPTED, f"policy.path={moved}", f"contrastive.steps={done + 1}"]
    with pytest.raises(AssertionError, match=rf"contrastive.steps was 200, is {done + 1}, and may only grow"):
        finish(start(there, *adapted))
    config = there / "run" / "config.yaml"
    config.write_text(config.read_text().replace("steps: 200", f"steps: {done + 1}"))
    output = finish(start(there, *adapted))
    assert f"continuing from {there}" in output and "it starts anew" in output  # the optimiser was left out
    assert [row["step"] for row in rows(there / "run" / "metrics.jsonl")] == list(range(1, done + 2))

    output = finish(start(there, *drop(adapted, "contrastive.steps"), f"contrastive.steps={done + 2}"))  # longer
    assert [row["step"] for row in rows(there / "run" / "metrics.jsonl")] == list(range(1, done + 3))
    looks = rows(there / "run" / "assessments_during.jsonl")
    assert {row["split"] for row in looks} == {"train", "held_out"} and done + 1 in {row["step"] for row in looks}
    assert json.loads((there / "run" / "report" / "summary.json").read_text())["stages"]["contrastive"]["train"]

    last = there / "run" / "checkpoints" / "contrastive-final"
    for name, origin in (("again", there / "run"), ("adapter", last / "adapter")):
        overrides = [*drop(adapted, "contrastive.steps", "policy.lora_rank"), f"init_from={origin}", f"name={name}"]
        output = finish(start(there, *overrides, "contrastive.steps=1", "contrastive.learning_rate=0"))  # the control
        assert (f"starting from {last}" in output) == (name == "again")
        after = load_adapter(there / name / "checkpoints" / "contrastive-final" / "adapter")
        assert all(tensor.equal(after[key]) for key, tensor in load_adapter(last / "adapter").items())
