"""Further turns: which candidates are asked again, what their prompts show, and what a turn is worth."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pyarrow.parquet as pq
import pytest

from cudal1_ray.actors.work_queue import WorkResult
from cudal1_ray.evaluation import Verdict
from cudal1_ray.exemplars import Exemplar, Selection
from cudal1_ray.problems import parse_problem
from cudal1_ray.prompting import Answer, Prompt, PromptBuilder, PromptingConfig
from cudal1_ray.rollout import Completion
from cudal1_ray.training.sampling import EvaluatedSample
from cudal1_ray.training.turns import as_shown, turn_credits, worth_another_turn
from tests.training.scripted_run import GROUP, PROBLEMS, STEPS, Stopped, open_session, run_stage

CODE = "class ModelNew:\n    pass\n"
SOURCE = "class Model: 1\n\ndef get_inputs():\n    return []\n\ndef get_init_inputs():\n    return []\n"


def evaluated_sample(verdict: Verdict, code: str | None = CODE, **place) -> EvaluatedSample:
    completion = Completion("r", 0, (1,), (-0.1,), "text", 0, "stop")
    place = {"group": 0, "index": 0} | place
    return EvaluatedSample(
        place["group"],
        place["index"],
        Prompt("p", "do it"),
        (1,),
        completion,
        Answer(code, "", "", ""),
        verdict,
        place.get("turn", 0),
        place.get("revises"),
    )


def accepted(speedup: float) -> Verdict:
    return Verdict(
        "p", "accepted", speedup=speedup, credited_speedup=speedup, runtime_ms=1.5 / speedup, reference_ms=1.5
    )


@pytest.mark.parametrize(
    ("verdict", "code", "again"),
    [
        (Verdict.rejected("p", "compile_error", "no such file"), CODE, True),
        (Verdict.rejected("p", "wrong_output"), CODE, True),
        (Verdict.rejected("p", "no_op_rewrite"), CODE, True),
        (accepted(0.5), CODE, True),
        (accepted(1.0), CODE, True),
        (accepted(1.2), CODE, False),
        (Verdict.rejected("p", "timer_patch"), CODE, False),
        (Verdict.rejected("p", "unparsable"), None, False),
    ],
)
def test_candidate_is_asked_again_when_it_failed_honestly_or_is_not_faster(verdict, code, again):
    assert worth_another_turn(evaluated_sample(verdict, code)) is again


def test_prompt_when_of_the_next_turn_shows_the_candidate_with_its_error_or_time():
    problem = parse_problem(SOURCE, "p", origin="test")
    builder = PromptBuilder(PromptingConfig(style="full"), len_of_words)
    failed = evaluated_sample(Verdict.rejected("p", "compile_error", "kernel.cu(3): error: expected a ';'"))
    text = builder.contrastive(problem, as_shown(failed)).text
    assert "## Candidate 1, score rejected, compile_error\n" in text
    assert "The evaluator's finding: kernel.cu(3): error: expected a ';'\n" in text and CODE.strip() in text
    text = builder.contrastive(problem, as_shown(evaluated_sample(accepted(0.5)))).text
    assert "score 0.50x" in text and "right; 3 ms a call, the reference takes 1.5 ms" in text


def len_of_words(text: str) -> int:
    return len(text.split())


def test_turn_when_rewarded_is_worth_the_best_that_comes_of_it():
    failed = Verdict.rejected("p", "wrong_output")
    batch = [
        evaluated_sample(failed, index=0),
        evaluated_sample(accepted(0.9), index=1),
        evaluated_sample(accepted(2.0), index=2, turn=1, revises=(0, 0)),
        evaluated_sample(failed, index=3, turn=1, revises=(0, 1)),
        evaluated_sample(accepted(4.0), index=4, turn=2, revises=(0, 3)),
        evaluated_sample(failed, group=1, index=0),
    ]
    rewards = [0.0, 0.9, 2.0, 0.0, 4.0, 0.0]
    assert turn_credits(batch, rewards, 0.5) == pytest.approx([1.0, 1.0, 2.0, 2.0, 4.0, 0.0])
    assert turn_credits(batch, rewards, 0.0) == rewards
    void = [None if place == 3 else reward for place, reward in enumerate(rewards)]
    assert turn_credits(batch, void, 0.5) == pytest.approx([1.0, 0.9, 2.0, None, 4.0, 0.0])


TURNS = ["contrastive.turns=2", "contrastive.turn_discount=0.5", "contrastive.ask_again=0", "prompting=full"]


def with_failures(session):
    """Let the first completion of every group fail to build; what revises it, and all others, are fast."""
    evaluator = session.crew.evaluations
    collect, failing = evaluator.collect, set()

    def submit(work_id, problem, code, best):
        if int(code.split("=")[1]) % 10 == 0:
            failing.add(work_id)
        evaluator._waiting.append([1, work_id, problem.problem_id, code])

    def collect_some(timeout_s=0.0):
        done = []
        for result in collect(timeout_s):
            failed = Verdict.rejected(result.value.problem_id, "compile_error", "no such header: fast.h")
            done.append(WorkResult(result.work_id, failed) if result.work_id in failing else result)
        return done

    evaluator.submit, evaluator.collect = submit, collect_some
    return session


def test_candidate_when_failed_is_asked_again_and_both_turns_train(tmp_path):
    session = run_stage(with_failures(open_session(tmp_path, *TURNS)))
    tally = Counter(request_id.split("/")[1] for request_id in session.crew.rollouts.asked)
    assert tally["1"] == PROBLEMS * GROUP and tally["1-turn-1"] == PROBLEMS
    assert not list(session.run.in_flight.glob("*"))
    assert all(row["later_turns"] == PROBLEMS and row["asked_again"] == 0 for row in session.metrics.lines)
    assert set(session.crew.learner.sequences) == {PROBLEMS * (GROUP + 1)}
    table = pq.read_table(session.run.rollouts / "contrastive-000001.parquet").to_pylist()
    later = [row for row in table if row["turn"] == 1]
    assert len(later) == PROBLEMS and all(row["status"] == "accepted" for row in later)
    for row in later:
        (before,) = (b for b in table if b["problem_id"] == row["problem_id"] and b["reasons"] == ["compile_error"])
        assert "The evaluator's finding: no such header: fast.h" in row["prompt"] and before["code"] in row["prompt"]
        assert before["turn"] == 0 and before["index"] != row["index"]
        # Only what came of it makes the failed turn worth more than nothing: the mean of the group has it.
        others = [b["reward"] for b in table if b["problem_id"] == row["problem_id"] and b is not before]
        assert before["reward"] < 0.5 * row["reward"] < row["reward"] and before["advantage"] < 0 < max(others)


def test_turn_when_interrupted_survives(tmp_path):
    first = with_failures(open_session(tmp_path, *TURNS))
    first.crew.rollouts.stop_after = PROBLEMS * GROUP + 1  # one of the first step's revisions is there
    with pytest.raises(Stopped):
        run_stage(first)
    first.batches._journal._lines._file.close()
    second = with_failures(open_session(tmp_path, *TURNS))
    run_stage(second)
    tally = Counter(request_id.split("/")[1] for request_id in second.crew.rollouts.asked)
    assert tally["1"] == 0 and tally["1-turn-1"] == PROBLEMS - 1 and tally["2"] == PROBLEMS * GROUP
    assert [row["step"] for row in second.metrics.lines] == list(range(1, STEPS + 1))


def test_candidate_when_a_prompt_has_no_room_for_it_is_not_asked_again(tmp_path):
    session = with_failures(open_session(tmp_path, *TURNS))
    fit = session.prompts._fit
    session.prompts._fit = lambda problem, exemplars, probability: fit(problem, [], {})
    run_stage(session)
    assert not any("turn" in request_id for request_id in session.crew.rollouts.asked)
    assert len(session.metrics.lines) == STEPS


EXEMPLAR_CODE = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.clone() * 2\n"
)


@pytest.mark.parametrize(
    ("code", "copied"),
    [
        (EXEMPLAR_CODE, True),
        (EXEMPLAR_CODE.replace("x.clone", "x . clone") + "# mine", True),
        (EXEMPLAR_CODE.replace("x", "values"), True),
        (EXEMPLAR_CODE.replace("clone", "detach"), False),
        (EXEMPLAR_CODE.replace("* 2", "* 4"), False),
        (None, False),
    ],
)
def test_candidate_when_it_is_an_exemplar_of_its_prompt_is_a_copy_under_any_names(code, copied):
    exemplar = Exemplar.new("p", EXEMPLAR_CODE, 2.0)
    builder = PromptBuilder(PromptingConfig(style="full", max_prompt_tokens=4000), lambda text: len(text) // 3)
    prompt = builder.contrastive(parse_problem(SOURCE, "p"), Selection((exemplar,), (1.0,), "bucket"))
    assert prompt.exemplar_ids == (exemplar.exemplar_id,)
    sample = evaluated_sample(accepted(2.0), code)
    assert dataclasses.replace(sample, prompt=prompt).copied is copied
    assert not sample.copied  # its prompt shows nothing
