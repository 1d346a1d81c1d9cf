"""The order of things in the pipeline: which stage may work beside which, and what an interruption leaves.

Session, journal, exemplar buffer, checkpoints and the files of steps in flight are real. Engine, evaluator and learner
are scripted, so that they can wait for each other and stop anywhere; test_overlap.py has the real ones.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections import Counter, deque
from pathlib import Path

import pytest
from rich.console import Console

from cudal1_ray.actors.exemplars import ExemplarActor
from cudal1_ray.actors.work_queue import WorkResult
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import CompileResult, Verdict
from cudal1_ray.problems import load_problems
from cudal1_ray.prompting import render_answer
from cudal1_ray.rollout import Completion
from cudal1_ray.training.checkpoints import TrainingState
from cudal1_ray.training.metrics import RunMetrics
from cudal1_ray.training.pipeline import Pipeline
from cudal1_ray.training.preparation import Beginning
from cudal1_ray.training.progress import Progress
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.session import Session
from cudal1_ray.training.stages.contrastive import contrastive_stage
from cudal1_ray.training.stopping import RunStopped, Stopper
from cudal1_ray.training.train import _restore

STEPS, PROBLEMS, GROUP = 5, 2, 3
PATIENCE_S = 60.0


class Stopped(Exception):
    """What stands for a kill."""


class Engine:
    """Finishes one completion every time it is asked, the last request first."""

    def __init__(self) -> None:
        self.busy_s, self.version, self.stop_after = 0.0, 0, 10**9
        self.asked: list[str] = []
        self.aborted: set[str] = set()
        self._open: dict[str, None] = {}

    def start(self, requests, sampling) -> None:
        assert not self._open, "one step at a time has the engines"
        self.asked += [request.request_id for request in requests]
        self._open = dict.fromkeys(request.request_id for request in requests)

    @property
    def outstanding(self) -> int:
        return len(self._open)

    def collect(self) -> list[Completion]:
        if not self._open:
            return []
        if self.stop_after == 0:
            raise Stopped
        self.stop_after -= 1
        self.busy_s += 0.001
        request_id, _ = self._open.popitem()
        _, step, group, index = request_id.split("/")
        step, _, turn = step.partition("-turn-")
        step, _, again = step.partition("-again-")
        index = int(index) + 4 * int(again or 0) + 6 * int(turn or 0)
        code = f"class ModelNew(Model):\n    gain = {int(step) * 100 + int(group) * 10 + int(index)}"
        text = render_answer("an analysis", "a design", code)
        return [Completion(request_id, 0, (1, 2), (-0.5, -0.5), text, self.version, "stop")]

    def abort(self, request_ids) -> int:
        ended = set(request_ids) & set(self._open)
        self.aborted |= ended
        for request_id in ended:
            del self._open[request_id]
        return len(ended)

    def settle(self) -> None: ...

    def score(self, pairs) -> list[tuple[float, ...]]:
        assert not self._open, "an engine that generates is not asked to score"
        return [tuple(-0.5 for _ in completion) for _, completion in pairs]


class Evaluator:
    """Accepts everything, after it has been asked three times; faster for a larger number in the code."""

    def __init__(self) -> None:
        self.busy_s, self._waiting = 0.0, deque()
        self.evaluated: Counter[str] = Counter()

    def submit(self, work_id: str, problem, code: str, best: float) -> None:
        self._waiting.append([3, work_id, problem.problem_id, code])

    def collect(self, timeout_s: float = 0.0) -> list[WorkResult]:
        done = []
        for work in self._waiting:
            work[0] -= 1
            if work[0] == 0:
                _, work_id, problem_id, code = work
                self.evaluated[work_id] += 1
                gain = 1.0 + int(code.split("=")[1]) % 10
                fields = {"speedup": gain, "credited_speedup": gain, "speedup_low": gain, "speedup_high": gain}
                done.append(WorkResult(work_id, Verdict(problem_id, "accepted", **fields)))
        self._waiting = deque(work for work in self._waiting if work[0] > 0)
        return done


class Compiler:
    def __init__(self) -> None:
        self._waiting: list[str] = []

    def submit(self, work_id: str, *args) -> None:
        self._waiting.append(work_id)

    def collect(self, timeout_s: float = 0.0) -> list[WorkResult]:
        done, self._waiting = [WorkResult(work_id, CompileResult()) for work_id in self._waiting], []
        return done


class Learner:
    """Remembers what it was given; `version` is that of its weights. A checkpoint of it is that number."""

    def __init__(self, engine: Engine) -> None:
        self.version, self._engine = 0, engine
        self.taken: list[tuple[int, set[int]]] = []  # its version, those of the completions
        self.sequences: list[int] = []
        self.wants_company, self.stop_at = False, -1

    def train_policy_gradient(self, sequences, algorithm) -> dict[str, float]:
        if self.version == self.stop_at:
            raise Stopped
        if self.wants_company and self.version < STEPS - 1:  # the last step has none left to overlap with
            following, deadline = f"contrastive/{self.version + 2}/", time.monotonic() + PATIENCE_S
            while not any(request_id.startswith(following) for request_id in self._engine.asked):
                assert time.monotonic() < deadline, "the next step does not begin while the learner learns"
                time.sleep(0.001)
        self.sequences.append(len(sequences))
        self.taken.append((self.version, {sequence.policy_version for sequence in sequences}))
        self.version += 1
        return {"loss": 0.0, "drift_mean_abs": 0.25, "drift_max_abs": 0.5, "drift_alarm": 1.0}

    def score(self, sequences) -> list[tuple[float, ...]]:
        return [tuple(-0.75 for _ in s.completion_token_ids) for s in sequences]

    def save(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "version").write_text(str(self.version))

    def load(self, folder: Path, weights: bool = True) -> None:
        assert weights
        self.version = int((folder / "version").read_text())

    def save_adapter(self, folder: Path) -> None: ...

    def save_policy(self, folder: Path) -> None:
        folder.mkdir()


class Company:
    """The crew of a run without Ray."""

    def __init__(self, config, run: RunFolder) -> None:
        self.config, self.evaluate_during_generation, self.machine, self.thought_prefix = config, True, None, ""
        self.rollouts, self.evaluations, self.compilations = Engine(), Evaluator(), Compiler()
        self.learner = Learner(self.rollouts)
        self.buffer = ExemplarActor(str(run.exemplars), config.exemplars)
        self.published: list[tuple[int, bool]] = []

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode()[:8])

    def count_tokens(self, text: str) -> int:
        return len(text) // 8

    def ask_exemplars(self, method: str, *args):
        return getattr(self.buffer, method)(*args)

    def publish(self, version: int, during_generation: bool = False) -> float:
        assert during_generation or not self.rollouts.outstanding
        assert version == self.learner.version
        self.rollouts.version = version
        self.published.append((version, during_generation))
        return 0.001


def open_session(folder: Path, *overrides: str) -> Session:
    config = load_config(
        [
            f"runs_dir={folder}",
            "name=run",
            "stage=contrastive",
            "policy.kind=huggingface",
            "policy.path=none",
            *([] if any(o.startswith("contrastive.steps=") for o in overrides) else [f"contrastive.steps={STEPS}"]),
            f"contrastive.problems_per_step={PROBLEMS}",
            f"contrastive.group_size={GROUP}",
            "prompting.max_prompt_tokens=4000",
            "checkpoint.every_steps=1",
            *overrides,
        ]
    )
    run = RunFolder.open(config)
    progress = Progress("run", str(run.path), Console(quiet=True))
    state = TrainingState(config.seed, config.rewards)
    problems = load_problems(config.problems)
    session = Session(config, run, Company(config, run), problems, state, RunMetrics(run), progress)
    latest = session.store.latest()
    _restore(session, "contrastive", Beginning(latest, own=True, whole=True) if latest else Beginning())
    session.ensure_published()
    session.progress.stage("contrastive", STEPS)
    return session


def run_stage(session: Session) -> Session:
    done = session.steps_done("contrastive")
    Pipeline(session, contrastive_stage(session, done)).run(done)
    return session


def rows_of(session: Session) -> list[dict]:
    return list(session.metrics.lines)


def check_complete(session: Session) -> None:
    assert [row["step"] for row in rows_of(session)] == list(range(1, STEPS + 1))
    assert [row["policy_version"] for row in rows_of(session)] == list(range(STEPS))
    assert not list(session.run.in_flight.glob("*"))
    keys = [(row["scope"], row["key"]) for row in session.journal._lines]
    assert len(keys) == len(set(keys)) == session.crew.buffer.size()


def test_staleness_0_takes_turns(tmp_path):
    session = run_stage(open_session(tmp_path))
    assert session.crew.learner.taken == [(version, {version}) for version in range(STEPS)]
    assert session.crew.published == [(version, False) for version in range(1, STEPS + 1)]
    check_complete(session)
    for row in rows_of(session):
        assert row["staleness_max"] == 0 and row["drift_mean_abs"] == 0.25 and row["drift_alarm"] == 1.0
        assert "off_policy_mean_abs" not in row and row["evaluations"] == PROBLEMS * GROUP


@pytest.mark.parametrize("staleness", [1, 2])
def test_generation_goes_on_while_the_learner_learns_within_the_bound(tmp_path, staleness):
    session = open_session(tmp_path, f"contrastive.staleness={staleness}")
    session.crew.learner.wants_company = True
    run_stage(session)
    check_complete(session)
    ages = [version - min(versions) for version, versions in session.crew.learner.taken]
    assert max(ages) <= staleness and ages[0] == 0 and all(ages[1:])
    # A younger policy than a step's own has never written any of it, and each step is of one policy.
    assert all(len(versions) == 1 for _, versions in session.crew.learner.taken)
    for row, age in zip(rows_of(session), ages, strict=True):
        assert row["staleness_max"] == age and row["stale_dropped"] == 0
        assert row["drift_mean_abs"] == 0.25  # by both sides' scores where the policies differ
        assert row.get("off_policy_mean_abs") == (0.25 if age else None)


def test_partial_rollouts_do_not_make_the_learner_wait(tmp_path):
    session = open_session(tmp_path, "contrastive.staleness=1", "contrastive.partial_rollouts=true")
    session.crew.rollouts.score = lambda pairs: [tuple(-0.5 for _ in completion) for _, completion in pairs]
    session.crew.learner.wants_company = True
    run_stage(session)
    check_complete(session)
    assert any(during for _, during in session.crew.published)


def test_over_sampling_gives_up_the_tail(tmp_path):
    session = run_stage(open_session(tmp_path, "contrastive.extra_problems=1", "contrastive.extra_completions=2"))
    engine = session.crew.rollouts
    assert len(engine.asked) == STEPS * (PROBLEMS + 1) * (GROUP + 2)
    # The last request is finished first: the last two groups' last completions count, all others are given up.
    counted = {f"contrastive/{step}/{g}/{i}" for step in range(1, STEPS + 1) for g in (1, 2) for i in (2, 3, 4)}
    assert set(engine.asked) - engine.aborted == counted
    for row in rows_of(session):
        assert row["aborted_completions"] == (PROBLEMS + 1) * (GROUP + 2) - PROBLEMS * GROUP
        assert row["surplus_completions"] == 0


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("kill", ["generation", "learning"])
def test_an_interrupted_stage_goes_on_with_all_it_had(tmp_path, staleness, kill):
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


def test_a_run_that_is_stopped_before_its_first_checkpoint_begins_again(tmp_path):
    # Without exemplars: the same completions would be copies of those that the first attempt left in the buffer.
    overrides = ["checkpoint.every_steps=10", "exemplars=none"]
    first = open_session(tmp_path, *overrides)
    first.crew.learner.stop_at = 2
    with pytest.raises(Stopped):
        run_stage(first)
    assert len(rows_of(first)) == 2
    second = open_session(tmp_path, *overrides)
    assert not rows_of(second)  # of steps that will be taken again
    check_complete(run_stage(second))


def test_what_later_policies_wrote_is_asked_again(tmp_path):
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


def test_idle_shares_are_of_every_role(tmp_path):
    session = run_stage(open_session(tmp_path, "contrastive.staleness=1"))
    for row in rows_of(session):
        assert {key for key in row if key.startswith("idle_")} == {"idle_rollout", "idle_evaluation", "idle_learner"}
        assert row["idle_evaluation"] == 1.0 and 0.0 <= row["idle_rollout"] <= 1.0
    assert rows_of(session)[0]["busy_rollout"] > 0.0


def test_a_stage_of_one_session_is_what_its_fields_say(tmp_path):
    session = open_session(tmp_path, "contrastive.extra_problems=3")
    stage = contrastive_stage(session)
    assert (stage.staleness, stage.groups, len(stage.prompts(1))) == (0, PROBLEMS, PROBLEMS + 3)
    assert dataclasses.replace(stage, staleness=1).staleness == 1


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_run_that_has_to_end_finishes_its_step_saves_it_and_goes_on_later(tmp_path, staleness):
    overrides = (f"contrastive.staleness={staleness}", "checkpoint.every_steps=10")
    first = open_session(tmp_path, *overrides)
    first.stopper.listen()
    before = signal.getsignal(signal.SIGTERM)
    take = first.crew.learner.train_policy_gradient

    def taken_away(sequences, algorithm):
        if first.crew.learner.version == 1:  # in the middle of step 2
            os.kill(os.getpid(), signal.SIGTERM)
        return take(sequences, algorithm)

    first.crew.learner.train_policy_gradient = taken_away
    try:
        with pytest.raises(RunStopped, match="SIGTERM"):
            run_stage(first)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert before != signal.SIG_DFL
    assert [row["step"] for row in rows_of(first)] == [1, 2] and first.store.latest().step == 2
    second = run_stage(open_session(tmp_path, *overrides))
    assert [version for version, _ in second.crew.learner.taken] == [2, 3, 4]
    check_complete(second)


def test_a_budget_that_the_next_step_would_exceed_ends_the_run_before_it(tmp_path):
    session = open_session(tmp_path)
    session.stopper = Stopper(max_minutes=0.5)
    session.last_step_s = 31.0
    with pytest.raises(RunStopped, match="max_minutes=0.5"):
        run_stage(session)
    assert not rows_of(session) and session.store.latest() is None  # nothing was done, nothing is saved
    session.last_step_s = 1.0
    run_stage(session)
    check_complete(session)


def test_a_finished_run_is_prolonged(tmp_path):
    run_stage(open_session(tmp_path))
    session = open_session(tmp_path, f"contrastive.steps={STEPS + 2}")
    assert session.steps_done("contrastive") == STEPS and session.store.final("contrastive") is None
    run_stage(session)
    assert [row["step"] for row in rows_of(session)] == list(range(1, STEPS + 3))
    assert session.store.latest().final and session.state.stages_done == ["contrastive"]
    assert session.state.policy_version == STEPS + 2


def test_a_problem_that_is_too_long_for_a_prompt_is_left_out_and_named(tmp_path):
    session = open_session(tmp_path)
    ids = [problem.problem_id for problem in session.train_problems]
    lengths = {problem_id: session.crew.count_tokens(session.prompt(problem_id).text) for problem_id in ids}
    longest = max(lengths.values())
    long = {problem_id for problem_id, tokens in lengths.items() if tokens == longest}
    shorter = open_session(tmp_path / "shorter", f"prompting.max_prompt_tokens={longest - 1}")
    assert {p.problem_id for p in shorter.train_problems} == lengths.keys() - long
    (note,) = shorter.progress._notes
    assert all(problem_id in note for problem_id in long) and "max_prompt_tokens" in note
    with pytest.raises(UserError, match="every training problem"):
        open_session(tmp_path / "none", "prompting.max_prompt_tokens=1")


def test_groups_that_do_not_differ_are_asked_again_and_train_together(tmp_path):
    session = open_session(tmp_path, "contrastive.ask_again=1", "contrastive.group_size=2", "exemplars=none")
    evaluator = session.crew.evaluations
    submit, alike = evaluator.submit, set()

    def submit_alike(work_id, problem, code, best):
        """The first two completions of each problem are alike in step 1."""
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


def test_a_step_with_too_few_informative_groups_makes_no_update(tmp_path):
    session = open_session(tmp_path, f"contrastive.min_informative_groups={PROBLEMS}", "rewards=success")

    def publish(version: int, during_generation: bool = False) -> float:
        session.crew.rollouts.version = version  # the learner's stays
        return 0.001

    session.crew.publish = publish
    run_stage(session)
    assert not session.crew.learner.taken and len(rows_of(session)) == STEPS
    assert all(row["update_left_out"] == 1.0 and row["informative_groups"] == 0 for row in rows_of(session))
