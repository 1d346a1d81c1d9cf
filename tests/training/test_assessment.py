"""Figures of an assessment, by hand."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from cudal1_ray.analysis.run_data import STAGES, RunData
from cudal1_ray.analysis.step_assessments import step_assessments_table
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.problems import load_problems
from cudal1_ray.problems.select import fixed_problems
from cudal1_ray.training import assessment
from cudal1_ray.training.assessment import (
    CONTROLS,
    UNTRAINED,
    assess,
    figures_of_rows,
    name_of_control,
    problems_of_table,
    sample,
    start_of_contrastive,
)
from cudal1_ray.training.checkpoints import TrainingState
from cudal1_ray.training.preparation import Beginning
from cudal1_ray.training.run_folder import RunFolder
from tests.training.scripted_run import open_session, run_stage


def sample_row(problem: str, speedup: float, own: bool = False, degenerate: bool = False):
    return {"problem_id": problem, "speedup": speedup, "own_kernel": own, "degenerate": degenerate}


def test_figures_when_assessed_are_shares_of_samples_and_of_the_best_of_each_problem():
    samples = [
        sample_row("a", 0.0, own=True),
        sample_row("a", 1.1, own=True),
        sample_row("b", 1.0),
        sample_row("b", 0.0),
    ]
    figures = figures_of_rows([*samples, sample_row("c", 9.0, degenerate=True)])
    assert (figures["samples"], figures["problems"]) == (4, 2)
    assert (figures["success"], figures["fast_1"], figures["fast_1_2"], figures["own_kernel"]) == (0.5, 0.25, 0.0, 0.25)
    assert figures["geomean"] == pytest.approx(math.exp((math.log(1.1) + 2 * math.log(0.1)) / 4))
    assert (figures["best_success"], figures["best_fast_1"], figures["best_own_kernel"]) == (1.0, 0.5, 0.5)
    assert figures["best_geomean"] == pytest.approx(math.sqrt(1.1))


def test_figures_when_no_sample_counts_are_the_numbers_of_samples_and_problems_alone():
    void = {**sample_row("a", 0.0), "reasons": ["unstable_timing"]}
    assert figures_of_rows([]) == figures_of_rows([void]) == {"samples": 0.0, "problems": 0.0}


def test_problem_when_one_sample_finds_it_degenerate_is_left_out_with_those_that_failed_before():
    unopened = sample_row("c", 0.0)
    figures = figures_of_rows([sample_row("a", 2.0), sample_row("c", 9.0, degenerate=True), unopened])
    assert (figures["samples"], figures["problems"], figures["success"]) == (1, 1, 1.0)


def test_figures_when_an_evaluation_failed_leave_its_sample_out():
    void = [{**sample_row(problem, 0.0), "reasons": ["unstable_timing"]} for problem in ("a", "b")]
    figures = figures_of_rows([sample_row("a", 2.0), *void])
    assert (figures["samples"], figures["problems"], figures["success"]) == (1, 1, 1.0)
    assert figures["geomean"] == figures["best_geomean"] == pytest.approx(2.0)


def test_report_when_a_run_has_looks_shows_them_and_own_kernels(tmp_path):
    run = RunData(tmp_path)
    assert step_assessments_table(run) == ""
    figures = figures_of_rows([sample_row("a", 1.3, own=True), sample_row("a", 0.0)])
    run.looks = [{"stage": "contrastive", "step": 4, "split": "held_out", "exemplars": False, **figures}]
    row = {"stage": "contrastive", "split": "train", "problem_id": "a", "index": 0, "own_kernel": True}
    run.assessments = [{**row, "status": "accepted", "speedup": 1.3}, {**row, "status": "rejected", "speedup": 0.0}]
    html = step_assessments_table(run)
    assert "after step 4" in html and "held-out problems, without exemplars" in html
    assert html.count("<td>50%</td>") == 4 + 3 and html.count("<td>100%</td>") == 2
    run.looks = [run.looks[0] | figures_of_rows([])]
    assert "0 samples" in step_assessments_table(run) and "<td>0%</td>" not in step_assessments_table(run)


def test_problems_of_the_table_when_a_number_is_set_are_that_many_and_the_same():
    config = load_config(["assessment.problems=3"])
    problems = load_problems(config.problems)
    session = SimpleNamespace(config=config)
    assert (
        problems_of_table(session, problems)
        == problems_of_table(session, problems[::-1])
        == fixed_problems(problems, 3)
    )
    config.assessment.problems = None
    assert problems_of_table(session, problems) == problems


@pytest.mark.parametrize(
    ("stage", "settings", "shows"),
    [
        (UNTRAINED, (), {UNTRAINED: False, "untrained_with_exemplars": True}),
        ("sft", (), {"sft": False}),
        ("self_supervised", (), {"self_supervised": False, "self_supervised_with_own_exemplars": True}),
        ("self_supervised", ("self_supervised.exemplar_prompts=false",), {"self_supervised": False}),
        ("self_supervised", ("self_supervised.rounds=1",), {"self_supervised": False}),
        ("contrastive", (), {"contrastive": True, "contrastive_without_exemplars": False}),
    ],
)
def test_policy_when_it_learnt_from_prompts_of_both_kinds_is_asked_both(tmp_path, monkeypatch, stage, settings, shows):
    session, way_of = run_stage(open_session(tmp_path, *settings)), {}

    def ask(session, problems, exemplars, name):
        way_of[name] = exemplars
        assert exemplars == (stage == "contrastive") or all(problem.split == "train" for problem in problems)
        return []

    monkeypatch.setattr(assessment, "sample", ask)
    assess(session, stage)
    assert way_of == shows and set(way_of) <= set(STAGES)


def start_of(run: Path, *overrides: str) -> Beginning:
    pretrained = ["policy.kind=huggingface", "policy.path=none"]
    return start_of_contrastive(load_config([*pretrained, *overrides]), RunFolder(run))


def write_adapter(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    return folder


def write_checkpoint(run: Path, name: str, version: int = 1) -> Path:
    """Write a checkpoint that has the driver's state and an adapter, as it is after a move to another machine."""
    (run / "policy").mkdir(parents=True, exist_ok=True)
    checkpoint, config = run / "checkpoints" / name, load_config([])
    state = TrainingState(config.seed, config.rewards)
    state.policy_version = version
    state.save_to_path(str(checkpoint / "state"))
    write_adapter(checkpoint / "adapter")
    return checkpoint


def test_prompts_when_policies_are_asked_with_exemplars_are_the_same(tmp_path, monkeypatch):
    session, sampled = run_stage(open_session(tmp_path)), []
    monkeypatch.setattr(session.batches, "sample", lambda prompts, *_, **__: sampled.append(prompts) or [])
    sample(session, session.train_problems + session.held_out_problems, True, "policy")
    sample(session, session.train_problems, True, "control")
    policy, control = sampled
    assert policy[: len(control)] == control and any(len(prompt.exemplar_ids) > 1 for prompt in control)


def test_start_of_the_contrastive_stage_when_it_is_of_another_run_is_its_checkpoint(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    with pytest.raises(UserError, match="no run, checkpoint or adapter is there"):
        start_of(run, f"init_from={other}")  # it is elsewhere by now
    sft = write_checkpoint(other, "sft-final")
    for place in (other, sft):
        start = start_of(run, f"init_from={place}")
        assert start.checkpoint.path == sft and start.adapter == sft / "adapter" and not start.whole
        assert name_of_control(start) == "sft_with_exemplars"
    later = start_of(run, f"init_from={write_checkpoint(other, 'contrastive-final')}")
    assert later.checkpoint.path.name == "contrastive-final" and name_of_control(later) == "start_with_exemplars"
    own = write_checkpoint(run, "sft-final")
    assert start_of(run, f"init_from={other}").checkpoint.path == own


@pytest.mark.parametrize("key", ["init_from", "policy.adapter"])
def test_start_of_the_contrastive_stage_when_it_is_an_adapter_is_that_or_the_runs_copy(tmp_path, key):
    run, folder = tmp_path / "run", write_adapter(tmp_path / "elsewhere")
    assert start_of(run, f"{key}={folder}").adapter == folder
    copy = write_adapter(run / "adapter")
    shutil.rmtree(folder)
    start = start_of(run, f"{key}={folder}")
    assert start == Beginning(adapter=copy) and name_of_control(start) == "start_with_exemplars"
    shutil.rmtree(copy)
    with pytest.raises(UserError, match="adapter is there"):
        start_of(run, f"{key}={folder}")


def test_start_of_the_contrastive_stage_when_there_is_nothing_else_is_the_base_policy(tmp_path):
    start = start_of(tmp_path)
    assert start == Beginning() and name_of_control(start) in CONTROLS
    with pytest.raises(UserError, match="has no finished self_supervised stage"):
        start_of(tmp_path, "policy.kind=scratch")


def test_start_of_the_contrastive_stage_when_its_checkpoint_is_gone_is_no_other_policy(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"stage": "contrastive", "policy_version": 7.0}) + "\n")
    with pytest.raises(UserError, match="from version 7 of the policy, .* is version 0"):
        start_of(tmp_path)
    write_checkpoint(tmp_path, "sft-final", version=2)
    with pytest.raises(UserError, match="is version 2"):
        start_of(tmp_path)
    latest = write_checkpoint(tmp_path, "self_supervised-final", version=7)
    assert start_of(tmp_path).checkpoint.path == latest
