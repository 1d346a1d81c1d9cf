"""Whole runs, small but real: vLLM, DeepSpeed, sandboxed evaluation, Ray actors; and what kills do to them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from cudal1_ray.cli import main
from cudal1_ray.problems.corpus import FOLDER
from tests.family import kill_actors, living_below
from tests.measured_once import MEASURED_ONCE

pytestmark = pytest.mark.timeout(2400)  # a run is minutes where other work shares the cores
SMALL = [
    "problems.families=[swish_chain]",  # two training problems, one held out, 16 candidates to learn from
    "policy.hidden_size=96",
    "policy.layers=2",
    "policy.heads=3",
    "policy.intermediate_size=192",
    "policy.vocab_size=600",
    "sft.epochs=3",
    "sft.drawn_members=1",
    "self_supervised.rounds=1",
    "self_supervised.samples_per_problem=4",
    "contrastive.steps=3",
    "contrastive.problems_per_step=2",
    "contrastive.group_size=4",
    "contrastive.rehearsed_pairs=4",
    "assessment.samples_per_problem=2",
    "prompting.max_completion_tokens=192",
    "rollout.max_num_seqs=32",
    "cluster.evaluator.count=1",  # a second one takes a start of its own and finds both cores busy
    "cluster.learner.threads=1",  # two that share busy cores take five times as long
    "evaluation.timing.half_width=0.5",  # no test reads how sure the speedups are
    "evaluation.timing.budget_s=0.2",
    "evaluation.timing.contestants=1",
    *MEASURED_ONCE,
    "learner.autocast=false",  # bfloat16 products would be a drift of 5e-4 between engine and learner
]


def few_candidates(folder: Path) -> str:
    """Return the setting of a corpus with the three fastest candidates of each training problem and a wrong one."""
    for file in FOLDER.glob("swish_chain_*/*.py"):
        if file.stem in ("fused", "fused_inplace", "sigmoid", "wrong_post"):
            copy = folder / "corpus" / file.parent.name / file.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    return f"sft.corpus={folder / 'corpus'}"


def command(folder: Path, *overrides: str) -> list[str]:
    return ["train", "name=run", f"runs_dir={folder}", *SMALL, *overrides]


def start(folder: Path, *overrides: str, process_group: int | None = None) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "cudal1_ray.cli", *command(folder, *overrides)]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=process_group
    )


def finish(process: subprocess.Popen[str], timeout: float = 900.0) -> str:
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, output
    return output


def rows(path: Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def wait_for_step(folder: Path, stage: str, step: int, process: subprocess.Popen[str], timeout: float = 900.0) -> None:
    deadline = time.monotonic() + timeout
    while not any(r["stage"] == stage and r["step"] >= step for r in rows(folder / "run" / "metrics.jsonl")):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline, f"{stage} never reached step {step}"
        time.sleep(0.05)


def check_complete(run: Path) -> None:
    """Assert that stages have their rows once, the table all samples, and no candidate was evaluated twice."""
    steps = [(r["stage"], r["step"]) for r in rows(run / "metrics.jsonl")]
    assert len(steps) == len(set(steps))
    assert [s for s in steps if s[0] == "contrastive"] == [("contrastive", n) for n in (1, 2, 3)]
    assert [s for s in steps if s[0] == "self_supervised"] == [("self_supervised", 1)]
    verdict_keys = [(r["scope"], r["key"]) for r in rows(run / "verdicts.jsonl")]
    assert len(verdict_keys) == len(set(verdict_keys))
    table = [row for row in rows(run / "assessments.jsonl") if "_exemplars" not in row["stage"]]
    samples = [(r["stage"], r["problem_id"], r["index"]) for r in table]
    assert len(samples) == len(set(samples)) == 4 * 3 * 2  # stages, problems, samples
    summary = json.loads((run / "report" / "summary.json").read_text())
    for stage in ("untrained", "sft", "self_supervised", "contrastive"):
        for split in ("train", "held_out"):
            figures = summary["stages"][stage][split]
            for name in ("success_rate", "mean", "geomean", "median", "p25", "p75", "max", "above_1_01"):
                assert isinstance(figures[name], (int, float)), (stage, split, name)
    assert "<html" in (run / "report" / "index.html").read_text()
    trained = run / "checkpoints" / "contrastive-final" / "policy"
    assert AutoModelForCausalLM.from_pretrained(trained).num_parameters() > 50_000
    assert AutoTokenizer.from_pretrained(trained).eos_token == "<eos>"


def kill_driver(process: subprocess.Popen[str]) -> str:
    """Kill a driver and return its output by then; assert that nothing that it started lives on."""
    children = living_below(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    output, _ = process.communicate()
    _, alive = psutil.wait_procs(children, timeout=120)
    assert not alive, f"left behind by the killed driver: {alive}"
    return output


@pytest.fixture(scope="module")
def battered_run(tmp_path_factory) -> Path:
    """Return the folder of a run in which every role dies once, and then the driver."""
    folder = tmp_path_factory.mktemp("runs")
    few = few_candidates(folder)
    process, killed = start(folder, few), []
    for class_name, stage, step in (
        ("EvaluatorActor", "sft", 2),
        ("RolloutActor", "sft", 2),
        ("CompilerActor", "self_supervised", 1),
        ("ExemplarActor", "self_supervised", 1),
        ("LearnerActor", "contrastive", 1),
    ):
        wait_for_step(folder, stage, step, process)
        if kill_actors(process.pid, class_name):
            killed.append(class_name)
    wait_for_step(folder, "contrastive", 2, process)
    output = kill_driver(process)
    assert killed == ["EvaluatorActor", "RolloutActor", "CompilerActor", "ExemplarActor", "LearnerActor"]
    assert "replaced" in output and "learner" in output, output

    output = finish(start(folder, few))
    assert "continuing from" in output
    return folder


@pytest.mark.slow
def test_run_when_every_role_and_the_driver_died_goes_on_by_the_same_command(battered_run):
    check_complete(battered_run / "run")
    assert any((battered_run / ".opened-problems").iterdir())


@pytest.mark.long
def test_run_when_killed_in_a_stage_that_runs_alone_goes_on(tmp_path):
    process = start(tmp_path, "stage=sft")
    wait_for_step(tmp_path, "sft", 2, process)
    kill_driver(process)
    assert "continuing from" in finish(start(tmp_path))
    check_complete(tmp_path / "run")


@pytest.mark.long
def test_stages_when_run_alone_start_where_the_one_before_ended(tmp_path):
    for stage, stages in (
        ("sft", {"sft"}),
        ("self_supervised", {"sft", "self_supervised"}),
        ("contrastive", {"sft", "self_supervised", "contrastive"}),
    ):
        finish(start(tmp_path, f"stage={stage}"))
        assert {r["stage"] for r in rows(tmp_path / "run" / "metrics.jsonl")} == stages
    check_complete(tmp_path / "run")


@pytest.mark.slow
def test_run_when_finished_shows_its_results_again_without_starting_anything(battered_run, capfd):
    capfd.readouterr()
    assert main(command(battered_run, few_candidates(battered_run))) == 0
    output = capfd.readouterr().out
    assert "report" in output and "contrastive" in output
    assert "starting actors" not in output and "continuing" not in output
    check_complete(battered_run / "run")


@pytest.mark.slow
def test_rollouts_when_recorded_carry_version_logprobs_and_lineage(battered_run):
    run = battered_run / "run"
    table = pq.read_table(run / "rollouts" / "contrastive-000003.parquet").to_pylist()
    assert len(table) == 8
    assert len({row["policy_version"] for row in table}) == 1
    first = pq.read_table(run / "rollouts" / "contrastive-000001.parquet").to_pylist()
    assert table[0]["policy_version"] == first[0]["policy_version"] + 2
    selections = rows(run / "selections.jsonl")
    assert [s["step"] for s in selections] == [1, 1, 2, 2, 3, 3]
    for metric in rows(run / "metrics.jsonl"):
        if metric["stage"] == "contrastive":
            assert metric.get("drift_mean_abs", 0.0) < 1e-4  # engine and learner agree after every sync
            assert metric["rehearsal_loss"] > 0


@pytest.mark.long
def test_plain_grpo_when_given_another_run_starts_from_it(battered_run):
    opened = {file.name: file.stat().st_ino for file in (battered_run / ".opened-problems").iterdir()}
    overrides = [f"init_from={battered_run}/run", "stage=contrastive", "exemplars=none", "name=plain"]
    output = finish(start(battered_run, *overrides, "contrastive.steps=1", "assessment.held_out=false"))
    assert "report" in output
    selections = rows(battered_run / "plain" / "selections.jsonl")
    assert selections and all(s["exemplar_ids"] == [] for s in selections)
    # It reads the problems that the run beside it opened: one that is opened again is a new file.
    now = {file.name: file.stat().st_ino for file in (battered_run / ".opened-problems").iterdir()}
    assert opened and opened.items() <= now.items()
