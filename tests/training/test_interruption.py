"""What an interruption leaves of a run, and how the run goes on."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from cudal1_ray.actors.exemplars import ExemplarActor
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.hardware import Machine
from cudal1_ray.exemplars import Exemplar
from cudal1_ray.exemplars.hardware_buffers import insert_measured
from cudal1_ray.files import JsonLines
from cudal1_ray.problems import load_problems
from cudal1_ray.training.pipeline import Pipeline
from cudal1_ray.training.preparation import prepare_run
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.sampling import EvaluatedSample, Plan
from cudal1_ray.training.stages.contrastive import contrastive_stage
from cudal1_ray.training.stopping import Stopper
from cudal1_ray.training.train import _train
from tests.training.scripted_run import (
    GROUP,
    PROBLEMS,
    STEPS,
    Stopped,
    check_complete,
    open_session,
    rows_of,
    run_stage,
)


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("kill", ["generation", "learning"])
def test_stage_when_interrupted_goes_on_with_all_it_had(tmp_path, staleness, kill):
    overrides = [f"contrastive.staleness={staleness}"]
    first = open_session(tmp_path, *overrides)
    if kill == "generation":
        first.crew.rollouts.stop_after = 2 * PROBLEMS * GROUP + 2  # in the third step
    else:
        first.crew.learner.stop_at = 2
    with pytest.raises(Stopped):
        run_stage(first)
    first.batches._journal._lines._file.close()
    evaluated = set(first.crew.evaluations.evaluated)
    finished = {
        completion.request_id
        for path in first.run.in_flight.glob("*.jsonl")
        for completion in first.batches.in_flight.step(path.stem).completions
    }

    second = open_session(tmp_path, *overrides)
    done, version = second.steps_done("contrastive"), second.state.policy_version
    assert done == version
    run_stage(second)
    check_complete(second)
    again = set(second.crew.rollouts.asked) & finished
    ahead = {f"contrastive/{step}/" for step in range(done + 1, done + staleness + 2)}
    usable = {request_id for request_id in finished if any(request_id.startswith(label) for label in ahead)}
    assert not again & usable  # what there was is not asked for again
    if kill == "learning":
        assert usable
    repeated = evaluated & set(second.crew.evaluations.evaluated)
    assert not repeated, "evaluated twice"
    ages = [version - min(versions) for version, versions in second.crew.learner.taken]
    assert max(ages) <= staleness


def test_engines_when_all_completions_of_a_resumed_step_are_on_disk_rest_before_evaluation(tmp_path, monkeypatch):
    first = open_session(tmp_path)
    first.crew.learner.stop_at = 0  # step 1 is generated and evaluated, and not learned
    with pytest.raises(Stopped):
        run_stage(first)
    second = open_session(tmp_path)
    engines, prompts = second.crew.rollouts, second.batches.in_flight.step("contrastive/1").prompts
    calls = []
    monkeypatch.setattr(engines, "rest", lambda: calls.append("rest"))
    plan = Plan("contrastive/1", tuple(prompts), GROUP, second.sampling(1.0, "contrastive/1"))
    batch = second.batches.begin(plan, second.problems, second.batches.collector("training"))
    assert batch.generated and calls == ["rest"] and not engines.asked


def test_assessment_when_continued_with_fewer_samples_asks_anew(tmp_path):
    first = open_session(tmp_path)
    first.crew.rollouts.stop_after = 4
    prompts = [first.prompt(problem.problem_id) for problem in first.train_problems[:1]]

    def samples(session, n: int) -> list[EvaluatedSample]:
        label = "assessment/1"
        return session.batches.sample(prompts, session.problems, n, session.sampling(1.0, label), "assessment", label)

    with pytest.raises(Stopped):
        samples(first, 5)
    assert [sample.index for sample in samples(open_session(tmp_path), 2)] == [0, 1]


def test_run_when_stopped_before_its_first_checkpoint_begins_again(tmp_path):
    overrides = ["checkpoint.every_steps=10"]
    first = open_session(tmp_path, *overrides)
    first.crew.learner.stop_at = 2
    with pytest.raises(Stopped):
        run_stage(first)
    assert len(rows_of(first)) == 2
    second = open_session(tmp_path, *overrides)
    assert not rows_of(second)  # of steps that will be taken again
    check_complete(run_stage(second))


def test_completions_when_written_after_the_last_checkpoint_are_asked_for_again(tmp_path):
    """Checkpoints every second step: what came after the last one was written by a policy that is gone."""
    overrides = ["checkpoint.every_steps=2"]
    first = open_session(tmp_path, *overrides)
    first.crew.learner.stop_at = 3  # steps 1 to 3 are learned, 4 is evaluated; the checkpoint has 2
    with pytest.raises(Stopped):
        run_stage(first)
    second = open_session(tmp_path, *overrides)
    assert second.state.step == 2
    run_stage(second)
    check_complete(second)
    tally = Counter(request_id.split("/")[1] for request_id in second.crew.rollouts.asked)
    assert tally["3"] == 0 and tally["4"] == PROBLEMS * GROUP
    assert not set(first.crew.evaluations.evaluated) & set(second.crew.evaluations.evaluated)
    assert second.crew.learner.taken == [(version, {version}) for version in (2, 3, 4)]


def test_completions_when_the_policy_was_looked_at_since_the_last_checkpoint_are_used_again(tmp_path):
    overrides = ["checkpoint.every_steps=10"]
    first = open_session(tmp_path, *overrides)
    Pipeline(first, stage := contrastive_stage(first, 0)).run(0, 1)
    prompts, label = [first.prompt(first.train_problems[0].problem_id)], "assessment/1"
    first.batches.sample(prompts, first.problems, 1, first.sampling(1.0, label), "assessment", label)
    first.crew.learner.stop_at = 2
    with pytest.raises(Stopped):
        Pipeline(first, stage).run(1)
    second = run_stage(open_session(tmp_path, *overrides))
    tally = Counter(request_id.split("/")[1] for request_id in second.crew.rollouts.asked)
    assert tally["1"] == 0 and tally["2"] == PROBLEMS * GROUP  # the policy of step 2 died with its learner
    assert [row["step"] for row in rows_of(second)] == list(range(1, STEPS + 1))
    assert not list(second.run.in_flight.glob("*"))


@pytest.mark.parametrize("every_steps", [2, 10], ids=["after_a_checkpoint", "before_the_first"])
def test_prompts_when_a_run_was_killed_show_the_exemplars_of_an_unbroken_run(tmp_path, every_steps):
    overrides = [f"checkpoint.every_steps={every_steps}", "exemplars=top_k"]
    unbroken = run_stage(open_session(tmp_path / "unbroken", *overrides))
    first = open_session(tmp_path, *overrides)
    first.crew.learner.stop_at = 3  # steps 1 to 3 are learned, 4 is evaluated
    with pytest.raises(Stopped):
        run_stage(first)
    continued = run_stage(open_session(tmp_path, *overrides))
    assert [*JsonLines(continued.run.selections)] == [*JsonLines(unbroken.run.selections)]
    check_complete(continued)


@pytest.mark.parametrize("taken_by", ["exemplars.seed_from", "init_from"])
def test_seeds_when_a_killed_run_wrote_copies_of_them_stay(tmp_path, taken_by):
    """Their steps and versions are those of the run that they come from: 7 and 6, beyond any here."""
    other = RunFolder.open(load_config([f"runs_dir={tmp_path}", "name=other"]))
    other.policy.mkdir()
    problems = load_problems(load_config([]).problems)
    code = "class ModelNew(Model):\n    gain = 100"  # the first candidate of step 1
    seeds = [Exemplar.new(p.problem_id, code, 9.0, policy_version=6, step=7) for p in problems if p.split == "train"]
    insert_measured(other.exemplars, "GPU", seeds)
    overrides = ["checkpoint.every_steps=2", "exemplars=top_k"]
    config = load_config([f"runs_dir={tmp_path}", "name=run", f"{taken_by}={other.path}"])
    prepare_run(config, RunFolder(tmp_path / "run"), problems, "sft")

    def session_on_the_gpu():
        session = open_session(tmp_path, *overrides)
        session.crew.machine = Machine("GPU")
        session.settle_hardware()
        return session

    first = session_on_the_gpu()
    first.crew.learner.stop_at = 3
    with pytest.raises(Stopped):
        run_stage(first)
    served = session_on_the_gpu().crew.buffer._buffer.served
    assert [exemplar.speedup for exemplar in served if exemplar.code == code] == [9.0] * len(seeds)


def test_exemplars_when_a_rewind_is_killed_between_its_renames_are_those_before_it(tmp_path, monkeypatch):
    problems, codes = load_problems(load_config([]).problems), ["x = 0", "x = 1", "x = 2"]
    other = RunFolder.open(load_config([f"runs_dir={tmp_path}", "name=other"]))
    other.policy.mkdir()
    insert_measured(other.exemplars, "GPU", [Exemplar.new("p", codes[0], 2.0)])
    config = load_config([f"runs_dir={tmp_path}", "name=run", f"init_from={other.path}"])
    run = RunFolder.open(config)
    prepare_run(config, run, problems, "sft")
    actor = ExemplarActor(str(run.exemplars), config.exemplars)
    actor.insert([Exemplar.new("p", code, 3.0, policy_version=n, step=n) for n, code in enumerate(codes[1:], 1)])

    def rename_until_killed(path: Path, name: Path) -> None:
        if path.name == ".exemplars.partial":
            raise KeyboardInterrupt
        os.rename(path, name)

    for restart in (lambda: None, lambda: prepare_run(config, run, problems, "sft")):  # of the actor alone, of the run
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, "rename", rename_until_killed)
            actor.rewind(2)
        restart()
        actor = ExemplarActor(str(run.exemplars), config.exemplars)
        assert actor.size() == len(codes)
    actor.rewind(2)
    assert actor.size() == 2


def test_looks_when_written_after_the_last_checkpoint_are_taken_again(tmp_path):
    overrides = ["checkpoint.every_steps=2"]
    first = open_session(tmp_path, *overrides)
    first.crew.learner.stop_at = 3
    with pytest.raises(Stopped):
        run_stage(first)
    rows = [{"stage": "contrastive", "step": step, "split": "train", "exemplars": False} for step in (1, 2, 3)]
    JsonLines(first.run.assessments_during).keep(rows)
    second = open_session(tmp_path, *overrides)
    assert [row["step"] for row in JsonLines(second.run.assessments_during)] == [1, 2]


@pytest.mark.parametrize("stage", ["sft", "all"])
def test_stage_when_the_run_began_a_later_one_without_it_is_refused_and_changes_nothing(tmp_path, monkeypatch, stage):
    first = open_session(tmp_path)
    first.crew.learner.stop_at = 2
    with pytest.raises(Stopped):
        run_stage(first)
    monkeypatch.setattr("cudal1_ray.training.train._run_stages", lambda *_: pytest.fail("it would be trained"))
    before = (first.run.path / "config.yaml").read_text()
    monkeypatch.setattr(first.config, "stage", stage)
    with pytest.raises(UserError, match=f"stage={stage}: .*run began its contrastive stage without sft"):
        _train(first.config, [], Stopper(None), "")
    assert (first.run.path / "config.yaml").read_text() == before


def test_run_when_finished_can_be_prolonged(tmp_path):
    run_stage(open_session(tmp_path))
    session = open_session(tmp_path, f"contrastive.steps={STEPS + 2}")
    assert session.steps_done("contrastive") == STEPS and session.store.final("contrastive") is None
    run_stage(session)
    assert [row["step"] for row in rows_of(session)] == list(range(1, STEPS + 3))
    assert session.store.latest().final and session.state.stages_done == ["contrastive"]
    assert session.state.policy_version == STEPS + 2
