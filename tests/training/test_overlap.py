"""Whole runs with overlap: real engine, evaluator and learner, the bounds they keep, and what a kill costs them."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.family import kill_actors, living_below
from tests.training.test_runs import finish, rows, start

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]
STEPS = 6
FAMILIES = "problems.families=[swish_chain,outer_sum]"  # four problems: two in a step and two more to sample
FROM_SELF_SUPERVISED = [FAMILIES, "stage=contrastive", f"contrastive.steps={STEPS}", "assessment.enabled=false"]


@pytest.fixture(scope="module")
def origin(tmp_path_factory) -> Path:
    """Return a run that is ready for the contrastive stage."""
    folder = tmp_path_factory.mktemp("origin")
    finish(start(folder, FAMILIES, "stage=sft", "assessment.enabled=false"))
    finish(start(folder, FAMILIES, "stage=self_supervised", "assessment.enabled=false"))
    return folder / "run"


def contrastive(folder: Path, origin: Path, *overrides: str):
    return start(folder, f"init_from={origin}", *FROM_SELF_SUPERVISED, *overrides)


def steps_of(run: Path) -> list[dict]:
    return [row for row in rows(run / "metrics.jsonl") if row["stage"] == "contrastive"]


def rollouts_of(run: Path, step: int) -> list[dict]:
    return pq.read_table(run / "rollouts" / f"contrastive-{step:06d}.parquet").to_pylist()


def check_bound(run: Path, staleness: int) -> set[int]:
    """Assert that no rollout is older than the bound allows; return the ages that occur."""
    steps = steps_of(run)
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    ages = set()
    for row in steps:
        lags = {int(row["policy_version"]) - rollout["policy_version"] for rollout in rollouts_of(run, row["step"])}
        assert lags <= set(range(staleness + 1)), (row["step"], lags)
        assert row["staleness_max"] == max(lags) and row["stale_dropped"] == 0
        ages |= lags
        for role in ("rollout", "evaluation", "learner"):
            assert 0.0 <= row[f"idle_{role}"] <= 1.0
        assert row["drift_mean_abs"] < 1e-4 and row["drift_alarm"] == 0.0  # measured in every step, whatever its age
    versions = [row["policy_version"] for row in steps]
    assert versions == list(range(int(versions[0]), int(versions[0]) + STEPS))
    verdict_keys = [(row["scope"], row["key"]) for row in rows(run / "verdicts.jsonl")]
    assert len(verdict_keys) == len(set(verdict_keys))  # nothing is evaluated twice
    assert not list((run / "rollouts" / "in_flight").glob("*"))  # nothing is left over
    selections = rows(run / "selections.jsonl")
    assert [s["step"] for s in selections] == sorted(s["step"] for s in selections)
    assert len(selections) % STEPS == 0 and {s["step"] for s in selections} == set(range(1, STEPS + 1))
    return ages


def test_staleness_0_when_trained_is_exactly_on_policy(tmp_path, origin):
    output = finish(contrastive(tmp_path, origin))
    assert check_bound(tmp_path / "run", 0) == {0}
    assert "contrastive: idle rollout" in output


def test_staleness_1_when_trained_is_one_behind_at_most_and_overlaps(tmp_path, origin):
    output = finish(contrastive(tmp_path, origin, "contrastive.staleness=1"))
    assert check_bound(tmp_path / "run", 1) == {0, 1}
    assert "contrastive: idle rollout" in output
    stale = [row for row in steps_of(tmp_path / "run") if row["staleness_max"] > 0 and row.get("loss") is not None]
    assert all("off_policy_mean_abs" in row for row in stale)


@pytest.mark.parametrize("staleness", [0, 1])
def test_run_when_killed_loses_no_completion_and_repeats_no_evaluation(tmp_path, origin, staleness):
    overrides = [f"contrastive.staleness={staleness}", "prompting.max_completion_tokens=256"]
    run, kept = tmp_path / "run", {}
    for kill_in in (2, 4):
        process = contrastive(tmp_path, origin, *overrides)
        deadline = time.monotonic() + 900
        flying = run / "rollouts" / "in_flight" / f"contrastive-{kill_in + staleness}.jsonl"
        saved = run / "checkpoints" / f"contrastive-{kill_in - 1:06d}"
        while len(rows(flying)) < 2 or not saved.is_dir():  # prompts and a completion
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        children = living_below(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=120)
        assert not alive
        done = max(int(path.name.rpartition("-")[2]) for path in (run / "checkpoints").glob("contrastive-0*"))
        version = next(row["policy_version"] for row in steps_of(run) if row["step"] == done) + 1
        for path in (run / "rollouts" / "in_flight").glob("contrastive-*.jsonl"):
            step = int(path.stem.rpartition("-")[2])
            for row in (lines := rows(path))[1:]:
                if step > done and row["completion"]["policy_version"] <= version:
                    name = row["completion"]["request_id"]
                    row["completion"]["text"] += f"\n# kept {name}"  # asked again, it would not have that
                    kept[step, name] = row["completion"]["text"]
            path.write_text("".join(json.dumps(row) + "\n" for row in lines))
    assert kept, "both kills came between steps"
    output = finish(contrastive(tmp_path, origin, *overrides))
    assert "continuing from" in output
    check_bound(run, staleness)
    for (step, _), text in kept.items():
        assert text in {rollout["completion"] for rollout in rollouts_of(run, step)}


def test_over_sampling_when_trained_takes_the_first_and_gives_up_the_rest(tmp_path, origin):
    overrides = ["contrastive.extra_problems=2", "contrastive.extra_completions=2", "contrastive.staleness=1"]
    finish(contrastive(tmp_path, origin, *overrides))
    run = tmp_path / "run"
    check_bound(run, 1)
    for row in steps_of(run):
        rollouts = rollouts_of(run, row["step"])
        groups = [rollout["prompt"] for rollout in rollouts]
        assert len(rollouts) == 8 and {groups.count(prompt) for prompt in groups} == {4}  # 2 groups of 4, as asked for
        assert row["surplus_completions"] + row.get("aborted_completions", 0) == 4 * 6 - 8
    selections = rows(run / "selections.jsonl")
    assert len(selections) == 4 * STEPS


def test_partial_rollouts_when_weights_change_go_on_under_the_new_ones(tmp_path, origin):
    overrides = ["contrastive.staleness=1", "contrastive.partial_rollouts=true", "contrastive.group_size=16"]
    finish(contrastive(tmp_path, origin, *overrides))
    check_bound(tmp_path / "run", 1)


def test_roles_when_they_die_while_they_overlap_are_replaced(tmp_path, origin):
    process = contrastive(tmp_path, origin, "contrastive.staleness=1")
    killed = []
    for class_name, step in (("RolloutActor", 1), ("EvaluatorActor", 2), ("LearnerActor", 3)):
        deadline = time.monotonic() + 900
        while not any(row["step"] >= step for row in steps_of(tmp_path / "run")):
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if kill_actors(process.pid, class_name):
            killed.append(class_name)
    output = finish(process)
    assert killed == ["RolloutActor", "EvaluatorActor", "LearnerActor"]
    assert "replaced" in output, json.dumps(killed)
    check_bound(tmp_path / "run", 1)
