"""A run whose engine, evaluator and learner are scripted, so that they can wait for each other and stop anywhere.

Session, journal, exemplar buffer, checkpoints and the files of steps in flight are real; test_overlap.py has the real
engine, evaluator and learner too.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from pathlib import Path

from rich.console import Console

from cudal1_ray.actors.exemplars import ExemplarActor
from cudal1_ray.actors.work_queue import WorkResult
from cudal1_ray.config import load_config
from cudal1_ray.evaluation import CompileResult, Verdict
from cudal1_ray.evaluation.hardware import Machine
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

    def rest(self) -> None: ...

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

    def __init__(self, config, run: RunFolder, machine: Machine | None = None) -> None:
        self.config, self.evaluate_during_generation, self.machine, self.thought_prefix = config, True, machine, ""
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


def open_session(folder: Path, *overrides: str, machine: Machine | None = None) -> Session:
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
    session = Session(config, run, Company(config, run, machine), problems, state, RunMetrics(run), progress)
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
