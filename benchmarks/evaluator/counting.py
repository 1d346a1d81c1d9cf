"""Counts where the seconds of an evaluator's processes go: for `phases`, which reports them."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from cudal1_ray.evaluation import EvaluationConfig, evaluator, measuring, pool
from cudal1_ray.evaluation.correctness import trials
from cudal1_ray.evaluation.exchange.server_messages import operation
from cudal1_ray.evaluation.host import handles
from cudal1_ray.evaluation.opening import open_problems, references
from cudal1_ray.evaluation.opening.store import SessionStore
from cudal1_ray.evaluation.scrutiny import doubts
from cudal1_ray.evaluation.sharing import turns
from cudal1_ray.evaluation.sharing.cores import LaunchCore
from cudal1_ray.evaluation.timing import estimate, pairs
from cudal1_ray.evaluation.verdict import candidate_hash
from cudal1_ray.files import write_atomically

Row = dict[str, Any]
# Environment variable with the folder where each slot writes what it counted.
FOLDER = "CUDAL1_PHASES"
# What is counted, by label: the function that takes the time and where it is looked up.
COUNTED: dict[str, tuple[Any, str]] = {
    "screening": (evaluator.Screening, "construct"), "build": (evaluator.Screening, "build"),
    "opening": (open_problems, "open_problem"), "opened problem: read": (SessionStore, "load"),
    "opened problem: written": (SessionStore, "_write"), "correctness: first": (trials.Correctness, "first"),
    "correctness: others": (trials.Correctness, "others"), "observation": (measuring, "observe"),
    "settling": (measuring, "settle"), "profile": (measuring, "profile"),
    "pairs: warm-up": (pairs.Pairs, "__init__"), "measure: bookkeeping": (measuring, "measure"),
    "measure: interval": (estimate, "trimmed_interval"), "late inputs": (doubts, "foreknowledge_s"),
    "unclocked calls": (doubts, "unseen_gain_s"), "comparing outputs": (pairs.Pairs, "compare_waiting"),
    "questions after": (pairs.Pairs, "ask_the_rest"),
    "reference: start": (references.References, "_start"),
    "reference: alone again": (references.References, "time_alone"),
    "closing": (measuring.TimedContestant, "close"), "memory back": (evaluator.Evaluator, "_give_memory_back"),
    "comparison": (trials, "compare_call"), "core's pace": (LaunchCore, "stay_fast"),
}  # fmt: skip
# What the seconds of one candidate are for: the first group one of whose words its phase begins with.
GROUPS = {
    "waiting": ("waiting for", "opening: waiting for"),
    "timing alone": ("exclusive: ",),
    "opening": ("opening", "maker: ", "opened problem: "),
    "screening": ("screening", "screener: "),
    "build": ("build",),
    "import": ("candidate: spawn", "candidate: attach", "candidate: load"),
    "first call": ("candidate: first go",),
    "compare": ("correctness", "comparison", "comparing", "candidate: fetch", "candidate: prepare", "candidate: go"),
    "reference": ("reference: ",),
}


def group_of(phase: str) -> str:
    """Return what a phase's seconds are for; "rest" where it is none of `GROUPS`."""
    return next((group for group, words in GROUPS.items() if phase.startswith(words)), "rest")


class Phases:
    """Seconds of one process by phase, each without the phases inside it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.candidates: list[Row] = []
        self.turns: list[tuple[float, float]] = []  # seconds waited for the exclusive turn, seconds that it lasted
        self._open: list[list[Any]] = []  # name, start, seconds of the phases inside
        self._exclusive = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        opens = any(entry[0] == "opening" for entry in self._open)
        entry = [("exclusive: " if self._exclusive else "opening: " if opens else "") + name, time.perf_counter(), 0.0]
        self._open.append(entry)
        try:
            yield
        finally:
            self._open.pop()
            took = time.perf_counter() - entry[1]
            self.seconds[entry[0]] += took - entry[2]
            self.calls[entry[0]] += 1
            if self._open:
                self._open[-1][2] += took

    @contextmanager
    def candidate(self, problem_id: str, code: str) -> Iterator[None]:
        """Keep what one candidate's seconds went for, and when it began and ended (clock of the machine)."""
        before, calls, begun = Counter(self.seconds), self.calls["opening"], time.monotonic()
        yield
        groups: Counter[str] = Counter()
        for name, seconds in self.seconds.items():
            groups[group_of(name)] += seconds - before[name]
        self.candidates.append({
            "problem": problem_id, "hash": candidate_hash(code), "begun": begun, "ended": time.monotonic(),
            "opened": self.calls["opening"] > calls, "groups": groups,
        })  # fmt: skip

    def wrap(self, owner: Any, name: str, label: str | Callable[..., str]) -> None:
        """Count every call of `owner`'s function `name`."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.phase(label if isinstance(label, str) else label(*args)):
                return function(*args, **kwargs)

        setattr(owner, name, counted)

    def install(self) -> None:
        """Wrap the evaluator's own functions in this process."""
        for label, (owner, name) in COUNTED.items():
            self.wrap(owner, name, label)
        pairs.compare_call = trials.compare_call
        spawn = handles.ForkServer.spawn

        @functools.wraps(spawn)
        def spawned(server: Any, *, role: str, **kwargs: Any) -> Any:
            with self.phase(f"{role}: spawn"):
                handle = spawn(server, role=role, **kwargs)
            handle.counted_role = role
            return handle

        handles.ForkServer.spawn = spawned
        self.wrap(handles.ContestantHandle, "ask", _label_of_question)
        held = turns._Room.held

        @contextmanager
        def counted_turn(room: Any, *, alone: bool, **limits: Any) -> Iterator[None]:
            with ExitStack() as stack:
                start = time.perf_counter()
                with self.phase("waiting for the exclusive turn" if alone else "waiting for a shared turn"):
                    stack.enter_context(held(room, alone=alone, **limits))
                taken = time.perf_counter()
                self._exclusive += alone
                try:
                    yield
                finally:
                    self._exclusive -= alone
                    if alone:
                        self.turns.append((taken - start, time.perf_counter() - taken))

        turns._Room.held = counted_turn

    def write(self, path: Path) -> None:
        """Write what was counted so far, with the phases that are not over."""
        seconds, now, inside = Counter(self.seconds), time.perf_counter(), 0.0
        for name, start, done_inside in reversed(list(self._open)):
            seconds[name] += now - start - inside - done_inside
            inside = now - start
        counts = {"seconds": seconds, "calls": self.calls, "turns": self.turns, "candidates": self.candidates}
        write_atomically(path, json.dumps(counts))

    def keep_writing(self, path: Path) -> None:
        """Write every half second, for as long as this process lives."""
        while True:
            time.sleep(0.5)
            with suppress(RuntimeError):  # a count that is new at this moment
                self.write(path)


# The phases of this process.
PHASES = Phases()


def _label_of_question(handle: Any, message: Any, *_: Any) -> str:
    """Return the label of a question to a process; the first call of a candidate has one of its own."""
    role, what = handle.counted_role, operation(message)
    if what == "go" and not getattr(handle, "counted_a_call", False):
        handle.counted_a_call, what = True, "first go" if role == "candidate" else what
    return f"{role}: {what}"


def _open_counted(*shared: Any) -> None:
    PHASES.install()
    pool._open(*shared)
    path = Path(os.environ[FOLDER]) / str(os.getpid())
    threading.Thread(target=PHASES.keep_writing, args=(path,), daemon=True).start()


def _evaluate_counted(problem: Any, code: str, best_speedup: float) -> Any:
    with PHASES.candidate(problem.problem_id, code), PHASES.phase("everything else"):
        return _worker_evaluate(problem, code, best_speedup)


_worker_evaluate = pool._evaluate


class CountedPool(pool.EvaluatorPool):
    """An EvaluatorPool whose slots count their phases, and write them to files of `folder`."""

    def __init__(self, config: EvaluationConfig, folder: Path) -> None:
        os.environ[FOLDER] = str(folder)
        pool._evaluate = _evaluate_counted
        super().__init__(config)

    def _start(self, count: int, opener: Callable[..., None]) -> ProcessPoolExecutor:
        return super()._start(count, _open_counted if opener is pool._open else opener)


def counted(folder: Path) -> tuple[Row, int]:
    """Return what all slots have counted so far, and how many slots that is."""
    total: dict[str, Any] = {"seconds": Counter(), "calls": Counter(), "turns": [], "candidates": []}
    files = list(folder.iterdir())
    for path in files:
        slot = json.loads(path.read_text())
        total["seconds"].update(slot["seconds"])
        total["calls"].update(slot["calls"])
        total["turns"] += slot["turns"]
        total["candidates"] += slot["candidates"]
    return total, len(files)
