"""Where the seconds of an evaluator's slots go, phase by phase, those of the exclusive turn, and those of a candidate.

Each slot counts the seconds that it spends in each phase itself (without the phases inside it), beside others and
within the exclusive turn. With --alone-seconds one evaluator alone is profiled before that, openings apart. With
--by-step the candidates of each step of a run are evaluated together, one step after another, as in training.

    python -m benchmarks.evaluator.phases --kernelbench kernelbench_v0.1.parquet --rollouts rollouts.parquet \
        --device cuda_train --seconds 100 --out phases.json [evaluation.key=value ...]
    python -m benchmarks.evaluator.phases --kernelbench kernelbench_v0.1.parquet --sizes scaled --by-step \
        --rollouts runs/kb/rollouts/contrastive-000007.parquet --seconds 100 --out phases.json
    python -m benchmarks.evaluator.phases --manifest corpus/manifest.jsonl --seconds 100 --out phases.json
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import os
import pstats
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from benchmarks.common.command_line import run_command
from benchmarks.common.results import write_result
from benchmarks.evaluator.common import as_candidate, evaluation_config, reference_pairs, rows_of
from benchmarks.evaluator.cost import rollout_pairs
from benchmarks.evaluator.counting import GROUPS, PHASES, CountedPool, counted
from cudal1_ray.commands.manifest import read_manifest
from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.scrutiny.confirmation import BestSpeedups
from cudal1_ray.problems import ProblemsConfig, load_problems, parse_problem

Row = dict[str, Any]
Candidate = tuple[str, Any, str]  # id, problem, code
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


def together(counting: CountedPool, candidates: list[Candidate], best: BestSpeedups) -> Iterator[tuple[str, Any]]:
    """Return (id, verdict) of all of them, asked at once in their order, as those of a step of training are."""
    with ThreadPoolExecutor(len(candidates)) as threads:
        of_futures = {}
        for identity, problem, code in candidates:
            future = threads.submit(
                lambda problem=problem, code=code: counting.evaluate(problem, code, best.of(problem))
            )
            of_futures[future] = identity, problem
        for done in as_completed(of_futures):
            identity, problem = of_futures[done]
            best.saw(problem, done.result())
            yield identity, done.result()


def of_slots(config: Any, steps: Mapping[str, list[Candidate]], seconds: float, report: Callable[[Row], None]) -> None:
    """Evaluate the candidates of each step side by side for `seconds`, and report the phases of that time;
    then this process ends, and with it the candidates that are in flight. The step "" is none: its candidates come as
    those of a benchmark of many problems do.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with CountedPool(config, folder) as counting:
            warm = []
            for number in range(config.slots):
                problem = parse_problem(WARM_UP.format(1 + number), f"warm-up-{number}", origin="warm-up")
                warm.append((str(number), problem, as_candidate(problem.source).replace("pass", "number = 1")))
            for _ in counting.evaluate_all(warm):
                pass
            time.sleep(1.0)  # until all slots have written
            before, _ = counted(folder)
            start, rows, passed, best = time.monotonic(), [], [], BestSpeedups()

            def finish() -> None:
                time.sleep(1.0)  # as above
                after, slots = counted(folder)
                number = sum(map(len, steps.values()))
                whole = summary(before, after, slots, list(rows), time.monotonic() - start)
                report({"asked": number, "steps": list(passed), **whole})
                shutil.rmtree(folder, ignore_errors=True)
                os._exit(0)

            timer = threading.Timer(seconds, finish)
            timer.start()
            for step, candidates in steps.items():
                begun = time.monotonic()
                verdicts = together(counting, candidates, best) if step else counting.evaluate_all(candidates)
                for identity, verdict in verdicts:
                    rows.append({
                        "id": identity, "hash": verdict.candidate_hash, "at": time.monotonic() - start,
                        "seconds": verdict.evaluation_s, "status": verdict.status, "speedup": verdict.speedup,
                        "reasons": verdict.reasons, "flags": verdict.flags, "detail": verdict.detail[:160],
                    })  # fmt: skip
                took = time.monotonic() - begun
                busy_s = sum(row["seconds"] for row in rows[-len(candidates) :])
                passed.append({"step": step, "candidates": len(candidates), "seconds": took,
                               "slots_busy": busy_s / took})  # fmt: skip
            timer.cancel()
            finish()


def summary(before: Row, after: Row, slots: int, rows: list[Row], passed: float) -> Row:
    """Return rates, the exclusive turn's share, and seconds by phase and by candidate, between two counts."""
    spent = {key: value - before["seconds"].get(key, 0.0) for key, value in after["seconds"].items()}
    calls = {key: value - before["calls"].get(key, 0) for key, value in after["calls"].items()}
    exclusive = after["turns"][len(before["turns"]) :]
    warm = {candidate["hash"] for candidate in before["candidates"]}
    by_hash = {candidate["hash"]: candidate for candidate in after["candidates"] if candidate["hash"] not in warm}
    for row in rows:
        row |= by_hash.get(row["hash"], {})
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
        "of_a_candidate": of_a_candidate(rows),
        "phases": {
            key: {"s": round(value, 3), "share_of_slots": round(value / (passed * slots), 4), "calls": calls.get(key)}
            for key, value in sorted(spent.items(), key=lambda item: -item[1])
        },
        "rows": rows,
    }  # fmt: skip


def of_a_candidate(rows: Iterable[Row]) -> Row:
    """Return [median seconds, share of the whole] of each group of phases, by what became of the candidate; those that
    opened their problem apart.
    """
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        if "groups" in row:
            what = "opened its problem" if row["opened"] else (row["reasons"] or [row["status"]])[0]
            kinds.setdefault(what, []).append(row)
    table: Row = {}
    for what, some in sorted(kinds.items(), key=lambda item: -len(item[1])):
        whole = sum(row["ended"] - row["begun"] for row in some)
        table[what] = {"candidates": len(some), "median_s": median([row["ended"] - row["begun"] for row in some])}
        for group in (*GROUPS, "rest"):
            each = [row["groups"].get(group, 0.0) for row in some]
            table[what][group] = [round(median(each), 3), round(sum(each) / whole, 4)]
    return table


def steps_of(path: Path, problems: Iterable[Any], most: int) -> dict[str, list[Candidate]]:
    """Return the distinct candidates of a run by step, in the order of the file; at most `most`, in whole steps."""
    by_id = {problem.problem_id: problem for problem in problems}
    steps: dict[str, dict[tuple[str, str], Candidate]] = {}
    for row in pq.read_table(path, columns=["step", "problem_id", "code"]).to_pylist():
        if row["code"] and row["problem_id"] in by_id:
            of_step = steps.setdefault(str(row["step"]), {})
            identity = f"{row['step']}:{row['problem_id']}:{len(of_step)}"
            of_step.setdefault((row["problem_id"], row["code"]), (identity, by_id[row["problem_id"]], row["code"]))
    left: dict[str, list[Candidate]] = {}
    for step, candidates in steps.items():
        if left and sum(map(len, left.values())) + len(candidates) > most:
            break
        left[step] = list(candidates.values())
    return left


def alone(config: Any, candidates: list[tuple[str, Any, str]], seconds: float, report: Callable[[Row], None]) -> None:
    """Profile one evaluator alone: the phases of problems' openings, those of candidates of open problems, and the
    functions that take the time of the latter.
    """
    PHASES.install()
    profiler, rows, start = cProfile.Profile(), [], time.monotonic()
    spent: dict[str, Counter[str]] = {"opening": Counter(), "candidate": Counter()}

    def evaluate(kind: str, problem: Any, code: str) -> tuple[Any, float]:
        before, begun = Counter(PHASES.seconds), time.monotonic()
        with PHASES.phase("everything else"):
            verdict = evaluator.evaluate(problem, code)
        spent[kind].update({name: PHASES.seconds[name] - before[name] for name in PHASES.seconds})
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
    parser.add_argument("--by-step", action="store_true", help="of rollouts, a step's candidates at once, in turn")
    parser.add_argument("--sizes", choices=("published", "scaled"), default="published", help="of problems, by step")
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
    if arguments.by_step and not (arguments.kernelbench and arguments.rollouts):
        parser.error("--by-step: name KernelBench's Parquet (--kernelbench) and a run's rollouts (--rollouts)")
    if arguments.manifest:
        candidates = [(pair.identity, pair.problem, pair.code) for pair in read_manifest(arguments.manifest).pairs]
        candidates = candidates[:: max(1, len(candidates) // arguments.most)]
    elif not arguments.by_step:
        candidates = reference_pairs(arguments.kernelbench, rows_of(arguments.rows))
        if arguments.rollouts:
            candidates = rollout_pairs(arguments.rollouts, [problem for _, problem, _ in candidates], arguments.most)
    if arguments.by_step:
        chosen = ProblemsConfig(source="parquet", path=str(arguments.kernelbench), sizes=arguments.sizes)
        steps = steps_of(arguments.rollouts, load_problems(chosen), arguments.most)
    else:
        steps = {"": candidates}
    result: dict[str, Any] = {}

    def report(name: str, section: Row) -> None:
        result[name] = section
        write_result(arguments.out, result, vars(arguments))
        for key, value in section.items():
            if key != "rows":
                inner = value.items() if isinstance(value, Mapping) else ()
                lines = [f"{key}: {'' if inner else value}", *(f"{name}: {figure}" for name, figure in inner)]
                print("\n ".join(lines)[:4000], flush=True)

    if arguments.alone_seconds > 0:
        alone(config, list(chain(*steps.values())), arguments.alone_seconds, functools.partial(report, "alone"))
    of_slots(config, steps, arguments.seconds, functools.partial(report, "slots"))


if __name__ == "__main__":
    run_command(main)
