#!/usr/bin/env python3
"""Where the seconds of an evaluator's slots go, phase by phase, and those of the exclusive turn.

Each slot counts the seconds that it spends in each phase itself (without the phases inside it), beside others and
within the exclusive turn. With --alone-seconds one evaluator alone is profiled before that, openings apart.

    python benchmarks/evaluator/phases.py --kernelbench kernelbench_v0.1.parquet --rollouts rollouts.parquet \
        --device cuda_train --seconds 100 --out phases.json [evaluation.key=value ...]
    python benchmarks/evaluator/phases.py --manifest corpus/manifest.jsonl --seconds 100 --out phases.json
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import json
import multiprocessing
import os
import pstats
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.results import write_result  # noqa: E402
from benchmarks.evaluator.common import as_candidate, evaluation_config, reference_pairs, rows_of  # noqa: E402
from benchmarks.evaluator.cost import rollout_pairs  # noqa: E402
from cudal1_ray.analysis import describe_environment  # noqa: E402
from cudal1_ray.commands.manifest import read_manifest  # noqa: E402
from cudal1_ray.evaluation import (  # noqa: E402
    Evaluator,
    evaluator,
    measuring,
    open_problems,
    pool,
    references,
    turns,
)
from cudal1_ray.evaluation.cores import LaunchCore  # noqa: E402
from cudal1_ray.evaluation.exchange.server_messages import operation  # noqa: E402
from cudal1_ray.evaluation.host import handles  # noqa: E402
from cudal1_ray.evaluation.referee import correctness  # noqa: E402
from cudal1_ray.evaluation.referee.store import SessionStore  # noqa: E402
from cudal1_ray.evaluation.timing import measurement, pairs  # noqa: E402
from cudal1_ray.files import write_atomically  # noqa: E402
from cudal1_ray.problems import parse_problem  # noqa: E402

Row = dict[str, Any]
FOLDER = "CUDAL1_PHASES"  # environment variable: where each slot writes what it counted
# What is counted, by label: the function that takes the time and where it is looked up.
COUNTED: dict[str, tuple[Any, str]] = {
    "screening": (evaluator.Screening, "screen"), "build": (evaluator.Evaluator, "_extensions"),
    "opening": (open_problems, "open_problem"), "opened problem: read": (SessionStore, "load"),
    "opened problem: written": (SessionStore, "_write"), "correctness: first": (correctness.Correctness, "first"),
    "correctness: others": (correctness.Correctness, "others"), "observation": (measuring, "observe"),
    "settling": (measuring, "settle"), "profile": (measuring, "profile"),
    "pairs: warm-up": (pairs.Pairs, "__init__"), "measure: bookkeeping": (measuring, "measure"),
    "measure: interval": (measurement, "trimmed_interval"), "late inputs": (measurement, "foreknowledge_s"),
    "unclocked calls": (measurement, "unseen_gain_s"), "comparing outputs": (pairs.Pairs, "compare_waiting"),
    "questions after": (pairs.Pairs, "ask_the_rest"),
    "reference: start": (references.References, "_start"),
    "reference: alone again": (references.References, "time_alone"),
    "closing": (measuring.TimedContestant, "close"), "memory back": (evaluator.Evaluator, "_give_memory_back"),
    "comparison": (correctness, "compare_call"), "core's pace": (LaunchCore, "stay_fast"),
}  # fmt: skip
WARM_UP = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * {}


def get_inputs():
    return [torch.randn(64, 1024)]


def get_init_inputs():
    return []
"""


class Phases:
    """Seconds of one process by phase, each without the phases inside it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.turns: list[tuple[float, float]] = []  # seconds waited for the exclusive turn, seconds that it lasted
        self._open: list[list[Any]] = []  # name, start, seconds of the phases inside
        self._exclusive = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        entry = [("exclusive: " if self._exclusive else "") + name, time.perf_counter(), 0.0]
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

    def wrap(self, owner: Any, name: str, label: str | Callable[..., str]) -> None:
        """Counts every call of `owner`'s function `name`."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.phase(label if isinstance(label, str) else label(*args)):
                return function(*args, **kwargs)

        setattr(owner, name, counted)

    def install(self) -> None:
        """Wraps the evaluator's own functions in this process."""
        for label, (owner, name) in COUNTED.items():
            self.wrap(owner, name, label)
        pairs.compare_call = correctness.compare_call
        spawn = handles.ForkServer.spawn

        @functools.wraps(spawn)
        def spawned(server: Any, *, role: str, **kwargs: Any) -> Any:
            with self.phase(f"{role}: spawn"):
                handle = spawn(server, role=role, **kwargs)
            handle.counted_role = role
            return handle

        handles.ForkServer.spawn = spawned
        self.wrap(
            handles.ContestantHandle, "ask", lambda handle, message, *_: f"{handle.counted_role}: {operation(message)}"
        )
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
        """Writes what was counted so far, with the phases that are not over."""
        seconds, now, inside = Counter(self.seconds), time.perf_counter(), 0.0
        for name, start, done_inside in reversed(list(self._open)):
            seconds[name] += now - start - inside - done_inside
            inside = now - start
        write_atomically(path, json.dumps({"seconds": seconds, "calls": self.calls, "turns": self.turns}))

    def keep_writing(self, path: Path) -> None:
        """Writes every half second, for as long as this process lives."""
        while True:
            time.sleep(0.5)
            with suppress(RuntimeError):  # a count that is new at this moment
                self.write(path)


_phases = Phases()


def _open_counted(*shared: Any) -> None:
    _phases.install()
    pool._open(*shared)
    path = Path(os.environ[FOLDER]) / str(os.getpid())
    threading.Thread(target=_phases.keep_writing, args=(path,), daemon=True).start()


def _evaluate_counted(problem: Any, code: str, best_speedup: float) -> Any:
    with _phases.phase("everything else"):
        return _worker_evaluate(problem, code, best_speedup)


_worker_evaluate = pool._evaluate


class CountedPool(pool.EvaluatorPool):
    """An EvaluatorPool whose slots count their phases."""

    def _start(self, count: int, opener: Callable[..., None]) -> ProcessPoolExecutor:
        opener = _open_counted if opener is pool._open else opener
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(count, context, initializer=opener, initargs=(self.config, *self._shared))


def counted(folder: Path) -> tuple[Row, int]:
    """What all slots have counted so far, and how many slots that is."""
    total: dict[str, Any] = {"seconds": Counter(), "calls": Counter(), "turns": []}
    files = list(folder.iterdir())
    for path in files:
        slot = json.loads(path.read_text())
        total["seconds"].update(slot["seconds"])
        total["calls"].update(slot["calls"])
        total["turns"] += slot["turns"]
    return total, len(files)


def of_slots(
    config: Any, candidates: list[tuple[str, Any, str]], seconds: float, report: Callable[[Row], None]
) -> None:
    """Evaluates candidates side by side for so long and reports the phases of that time; then this process ends, and
    with it the candidates that are in flight.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ[FOLDER] = name
        pool._evaluate = _evaluate_counted
        with CountedPool(config) as counting:
            warm = []
            for number in range(config.slots):
                problem = parse_problem(WARM_UP.format(1 + number), f"warm-up-{number}", origin="warm-up")
                warm.append((str(number), problem, as_candidate(problem.source).replace("pass", "number = 1")))
            for _ in counting.evaluate_all(warm):
                pass
            time.sleep(1.0)  # until all slots have written
            before, _ = counted(folder)
            start, rows = time.monotonic(), []

            def finish() -> None:
                after, slots = counted(folder)
                report(summary(before, after, slots, list(rows), time.monotonic() - start) | {"asked": len(candidates)})
                shutil.rmtree(folder, ignore_errors=True)
                os._exit(0)

            timer = threading.Timer(seconds, finish)
            timer.start()
            for identity, verdict in counting.evaluate_all(candidates):
                rows.append({
                    "id": identity, "at": time.monotonic() - start, "seconds": verdict.evaluation_s,
                    "status": verdict.status, "speedup": verdict.speedup, "reasons": verdict.reasons,
                    "flags": verdict.flags, "detail": verdict.detail[:160],
                })  # fmt: skip
            timer.cancel()
            finish()


def summary(before: Row, after: Row, slots: int, rows: list[Row], passed: float) -> Row:
    """Rates, the exclusive turn's share and the seconds of each phase, between two counts."""
    spent = {key: value - before["seconds"].get(key, 0.0) for key, value in after["seconds"].items()}
    calls = {key: value - before["calls"].get(key, 0) for key, value in after["calls"].items()}
    exclusive = after["turns"][len(before["turns"]) :]
    return {
        "candidates": len(rows), "seconds": passed, "per_hour": 3600 * len(rows) / passed, "slots": slots,
        "status": Counter(row["status"] for row in rows),
        "reasons": Counter(reason for row in rows for reason in row["reasons"]),
        "flags": Counter(flag for row in rows for flag in row["flags"]),
        "median_evaluation_s": median([row["seconds"] for row in rows] or [0.0]),
        "slots_idle_share": 1 - sum(spent.values()) / (passed * slots),
        "exclusive": {
            "turns": len(exclusive), "share_of_the_time": sum(held for _, held in exclusive) / passed,
            "median_held_s": median([held for _, held in exclusive] or [0.0]),
            "median_waited_s": median([waited for waited, _ in exclusive] or [0.0]),
        },
        "phases": {
            key: {"s": round(value, 3), "share_of_slots": round(value / (passed * slots), 4), "calls": calls.get(key)}
            for key, value in sorted(spent.items(), key=lambda item: -item[1])
        },
        "rows": rows,
    }  # fmt: skip


def alone(config: Any, candidates: list[tuple[str, Any, str]], seconds: float, report: Callable[[Row], None]) -> None:
    """Profiles one evaluator alone: the phases of problems' openings, those of candidates of open problems, and the
    functions that take the time of the latter.
    """
    _phases.install()
    profiler, rows, start = cProfile.Profile(), [], time.monotonic()
    spent: dict[str, Counter[str]] = {"opening": Counter(), "candidate": Counter()}

    def evaluate(kind: str, problem: Any, code: str) -> tuple[Any, float]:
        before, begun = Counter(_phases.seconds), time.monotonic()
        with _phases.phase("everything else"):
            verdict = evaluator.evaluate(problem, code)
        spent[kind].update({name: _phases.seconds[name] - before[name] for name in _phases.seconds})
        return verdict, time.monotonic() - begun

    with Evaluator(config) as evaluator:
        for identity, problem, code in candidates:
            if time.monotonic() - start > seconds:
                break
            _, opening_s = evaluate("opening", problem, as_candidate(problem.source))
            profiler.enable()
            verdict, took = evaluate("candidate", problem, code)
            profiler.disable()
            rows.append({"id": identity, "opening_s": opening_s, "seconds": took, "status": verdict.status,
                         "speedup": verdict.speedup, "reasons": verdict.reasons})  # fmt: skip
    stats = pstats.Stats(profiler).stats
    top = {}
    for column, name in ((2, "own"), (3, "with_what_it_calls")):
        order = sorted(stats.items(), key=lambda item: -item[1][column])[:45]
        top[name] = [
            [f"{Path(key[0]).name}:{key[1]} {key[2]}", value[0], round(value[column], 3)] for key, value in order
        ]
    phases = {
        kind: {name: round(value, 3) for name, value in counted.most_common() if value > 0}
        for kind, counted in spent.items()
    }
    report({"phases": phases, "rows": rows, **top})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, help="KernelBench's Parquet")
    parser.add_argument(
        "--rollouts", type=Path, help="candidates of a run: columns problem_id and code; else the references"
    )
    parser.add_argument("--rows", default=":", help="of KernelBench, first:end:step")
    parser.add_argument("--manifest", type=Path, help="instead of both: pairs of problem and candidate")
    parser.add_argument("--device", default="cuda_train", help="preset of conf/evaluation")
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--alone-seconds", type=float, default=0.0, help="of the profile of one evaluator")
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("overrides", nargs="*", metavar="evaluation.key=value")
    arguments = parser.parse_args()
    config = evaluation_config(arguments.device, arguments.overrides)
    if arguments.manifest:
        candidates = [(pair.identity, pair.problem, pair.code) for pair in read_manifest(arguments.manifest).pairs]
        candidates = candidates[:: max(1, len(candidates) // arguments.most)]
    else:
        candidates = reference_pairs(arguments.kernelbench, rows_of(arguments.rows))
        if arguments.rollouts:
            candidates = rollout_pairs(arguments.rollouts, [problem for _, problem, _ in candidates], arguments.most)
    result: dict[str, Any] = {"arguments": sys.argv[1:], "environment": describe_environment()}

    def report(name: str, section: Row) -> None:
        result[name] = section
        write_result(arguments.out, result)
        print(json.dumps({key: value for key, value in section.items() if key != "rows"}, indent=1)[:6000], flush=True)

    if arguments.alone_seconds > 0:
        alone(config, candidates, arguments.alone_seconds, functools.partial(report, "alone"))
    of_slots(config, candidates, arguments.seconds, functools.partial(report, "slots"))


if __name__ == "__main__":
    main()
