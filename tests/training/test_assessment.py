"""Figures of an assessment, by hand."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from cudal1_ray.analysis.run_data import RunData
from cudal1_ray.analysis.step_assessments import step_assessments_table
from cudal1_ray.config import load_config
from cudal1_ray.evaluation import Verdict
from cudal1_ray.problems import load_problems
from cudal1_ray.problems.select import fixed_problems
from cudal1_ray.training.assessment import figures_of, problems_of_table, sample, start_of_contrastive
from cudal1_ray.training.checkpoints import Checkpoint
from cudal1_ray.training.run_folder import RunFolder
from tests.training.scripted_run import open_session, run_stage


def evaluated_sample(problem: str, speedup: float, own: bool = False, degenerate: bool = False):
    status = "accepted" if speedup else "rejected"
    verdict = Verdict(problem, status, credited_speedup=speedup, own_kernel=own, degenerate=degenerate)
    return SimpleNamespace(prompt=SimpleNamespace(problem_id=problem), verdict=verdict)


def test_figures_when_assessed_are_shares_of_samples_and_of_the_best_of_each_problem():
    samples = [
        evaluated_sample("a", 0.0, own=True),
        evaluated_sample("a", 1.1, own=True),
        evaluated_sample("b", 1.0),
        evaluated_sample("b", 0.0),
    ]
    figures = figures_of([*samples, evaluated_sample("c", 9.0, degenerate=True)])
    assert (figures["samples"], figures["problems"]) == (4, 2)
    assert (figures["success"], figures["fast_1"], figures["fast_1_2"], figures["own_kernel"]) == (0.5, 0.25, 0.0, 0.25)
    assert figures["geomean"] == pytest.approx(math.exp((math.log(1.1) + 2 * math.log(0.1)) / 4))
    assert (figures["best_success"], figures["best_fast_1"], figures["best_own_kernel"]) == (1.0, 0.5, 0.5)
    assert figures["best_geomean"] == pytest.approx(math.sqrt(1.1))
    assert figures_of([])["success"] == 0.0


def test_report_when_a_run_has_looks_shows_them_and_own_kernels(tmp_path):
    run = RunData(tmp_path)
    assert step_assessments_table(run) == ""
    figures = figures_of([evaluated_sample("a", 1.3, own=True), evaluated_sample("a", 0.0)])
    run.looks = [{"stage": "contrastive", "step": 4, "split": "held_out", "exemplars": False, **figures}]
    row = {"stage": "contrastive", "split": "train", "problem_id": "a", "index": 0, "own_kernel": True}
    run.assessments = [{**row, "status": "accepted", "speedup": 1.3}, {**row, "status": "rejected", "speedup": 0.0}]
    html = step_assessments_table(run)
    assert "after step 4" in html and "held-out problems, without exemplars" in html
    assert html.count("<td>50%</td>") == 4 + 3 and html.count("<td>100%</td>") == 2


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


def start_of(run: Path, init_from: Path | None = None) -> Checkpoint | None:
    return start_of_contrastive(load_config([f"init_from={init_from}"] if init_from else []), RunFolder(run))


def write_checkpoint(run: Path, name: str) -> Path:
    (run / "policy").mkdir(parents=True, exist_ok=True)
    (checkpoint := run / "checkpoints" / name).joinpath("state").mkdir(parents=True)
    return checkpoint


def test_prompts_when_policies_are_asked_with_exemplars_are_the_same(tmp_path, monkeypatch):
    session, sampled = run_stage(open_session(tmp_path)), []
    monkeypatch.setattr(session.sampler, "sample", lambda prompts, *_, **__: sampled.append(prompts) or [])
    sample(session, session.train_problems + session.held_out_problems, True, "policy")
    sample(session, session.train_problems, True, "control")
    policy, control = sampled
    assert policy[: len(control)] == control and any(len(prompt.exemplar_ids) > 1 for prompt in control)


def test_start_of_the_contrastive_stage_when_it_is_of_another_run_is_found_there(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    assert start_of(run) is None
    assert start_of(run, other) is None  # it is elsewhere by now
    sft = write_checkpoint(other, "sft-final")
    for place in (other, sft):
        assert start_of(run, place).path == sft
    later = write_checkpoint(other, "contrastive-final")
    assert start_of(run, later) is None
    own = write_checkpoint(run, "sft-final")
    assert start_of(run, other).path == own
