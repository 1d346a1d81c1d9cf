"""What a step of stage 3 asks for, what it gives up, asks again and learns from."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from cudal1_ray.exemplars import Exemplar
from cudal1_ray.learning import TrainingSequence
from cudal1_ray.training.pipeline import Pipeline
from cudal1_ray.training.stages.contrastive import contrastive_stage
from tests.training.scripted_run import GROUP, PROBLEMS, STEPS, open_session, rows_of, run_stage


def test_over_sampling_when_a_step_is_full_gives_up_the_tail(tmp_path):
    session = run_stage(open_session(tmp_path, "contrastive.extra_problems=1", "contrastive.extra_completions=2"))
    engine = session.crew.rollouts
    assert len(engine.asked) == STEPS * (PROBLEMS + 1) * (GROUP + 2)
    # The last request is finished first: the last two groups' last completions count, all others are given up.
    counted = {f"contrastive/{step}/{g}/{i}" for step in range(1, STEPS + 1) for g in (1, 2) for i in (2, 3, 4)}
    assert set(engine.asked) - engine.aborted == counted
    for row in rows_of(session):
        assert row["aborted_completions"] == (PROBLEMS + 1) * (GROUP + 2) - PROBLEMS * GROUP
        assert row["surplus_completions"] == 0


def test_stage_when_of_one_session_has_the_values_of_its_fields(tmp_path):
    session = open_session(tmp_path, "contrastive.extra_problems=3")
    stage = contrastive_stage(session)
    assert (stage.staleness, stage.groups, len(stage.prompts(1))) == (0, PROBLEMS, PROBLEMS + 3)
    assert dataclasses.replace(stage, staleness=1).staleness == 1


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.3, 1), (0.5, 2), (1.0, 4)])
def test_prompts_when_a_share_is_one_shot_show_no_exemplar_there(tmp_path, share, count):
    session = open_session(tmp_path, "contrastive.problems_per_step=4", f"contrastive.one_shot_share={share}")
    for gain in (1, 2):
        code = f"class ModelNew(Model):\n    gain = {gain}"
        session.crew.ask_exemplars("insert", [Exemplar.new(name, code, gain) for name in session.rotation])
    stage = contrastive_stage(session)
    assert stage.prompts(1) == stage.prompts(1)
    places = [{n for n, prompt in enumerate(stage.prompts(step)) if not prompt.exemplar_ids} for step in range(1, 21)]
    assert {len(of_step) for of_step in places} == {count}
    assert (len({frozenset(of_step) for of_step in places}) > 1) == (0 < count < 4)


def test_groups_when_they_do_not_differ_are_asked_again_and_train_together(tmp_path):
    session = open_session(tmp_path, "contrastive.ask_again=1", "contrastive.group_size=2", "exemplars=none")
    evaluator = session.crew.evaluations
    submit, alike = evaluator.submit, set()

    def submit_alike(work_id, problem, code, best):
        """Submit the first two completions of each problem alike in step 1."""
        number = int(code.split("=")[1])
        if number // 100 == 1 and sum(problem_id == problem.problem_id for problem_id, _ in alike) < 2:
            alike.add((problem.problem_id, number))
            code = "class ModelNew(Model):\n    gain = 3"
        submit(work_id, problem, code, best)

    evaluator.submit = submit_alike
    run_stage(session)
    tally = Counter(request_id.split("/")[1] for request_id in session.crew.rollouts.asked)
    assert tally["1"] == tally["1-again-1"] == PROBLEMS * 2 and tally["2"] == PROBLEMS * 2 and tally["2-again-1"] == 0
    assert not list(session.run.in_flight.glob("*"))
    first, second = rows_of(session)[:2]
    assert first["asked_again"] == PROBLEMS and second["asked_again"] == 0
    assert first["informative_groups"] == first["groups"] == PROBLEMS
    assert session.crew.learner.sequences[0] == PROBLEMS * 4


def keep_learners_version(session):
    """Let the engine take versions that the learner, which makes no update, does not have."""

    def publish(version: int, during_generation: bool = False) -> float:
        session.crew.rollouts.version = version
        return 0.001

    session.crew.publish = publish


def test_step_when_too_few_groups_are_informative_makes_no_update(tmp_path):
    session = open_session(tmp_path, f"contrastive.min_informative_groups={PROBLEMS}", "rewards=success")
    keep_learners_version(session)
    run_stage(session)
    assert not session.crew.learner.taken and len(rows_of(session)) == STEPS
    assert all(row["update_left_out"] == 1.0 and row["informative_groups"] == 0 for row in rows_of(session))


@pytest.mark.parametrize("taught", [True, False])
def test_step_when_pairs_are_rehearsed_learns_from_them_after_its_completions(tmp_path, taught):
    overrides = [] if taught else [f"contrastive.min_informative_groups={PROBLEMS}", "rewards=success"]
    session = open_session(tmp_path, *overrides)
    learner, learned = session.crew.learner, []
    if not taught:
        keep_learners_version(session)

    def train_sft(sequences) -> dict[str, float]:
        learned.append((len(learner.taken), [s.prompt_token_ids for s in sequences]))
        return {"loss": 2.0, "grad_norm": 0.5}

    learner.train_sft = train_sft
    stage = contrastive_stage(session, rehearsed=lambda step: [TrainingSequence((step,), (n,)) for n in (1, 2)])
    Pipeline(session, stage).run(0)
    assert learned == [(step if taught else 0, [(step,), (step,)]) for step in range(1, STEPS + 1)]
    assert [(row["rehearsal_loss"], row["rehearsal_grad_norm"]) for row in rows_of(session)] == [(2.0, 0.5)] * STEPS


def test_step_when_the_learning_rate_is_zero_makes_no_update(tmp_path):
    session = open_session(tmp_path, "contrastive.learning_rate=0")
    keep_learners_version(session)
    run_stage(session)
    assert not session.crew.learner.taken and len(rows_of(session)) == STEPS
    assert all(row["update_left_out"] == 1.0 and row["informative_groups"] > 0 for row in rows_of(session))
