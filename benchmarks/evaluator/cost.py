"""Seconds and candidates per hour of the evaluator, beside a process per candidate as KernelBench's own way has it.

Every section writes what it has to --out as it goes, and ends after its share of --minutes: a run that is stopped
leaves what it measured. Without --rollouts, or without a compiler for builds, these sections are left out.

    python -m benchmarks.evaluator.cost --kernelbench kernelbench_v0.1.parquet --rollouts rollouts.parquet \
        --device cuda_train --minutes 30 --out cost.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.common.command_line import run_command
from benchmarks.common.results import write_result
from benchmarks.evaluator.common import as_candidate, evaluation_config, reference_pairs
from cudal1_ray.analysis import describe_environment
from cudal1_ray.evaluation import EvaluationConfig, Evaluator
from cudal1_ray.evaluation.compiling.compiler import Compiler
from cudal1_ray.evaluation.compiling.headers import PrecompiledHeaders
from cudal1_ray.evaluation.pool import EvaluatorPool
from cudal1_ray.problems import Problem
from cudal1_ray.problems.kernelbench import kernelbench_id

OTHER_WAY = Path(__file__).resolve().parent / "per_candidate_process.py"
SHARES = {"failing": 1, "problems": 6, "other_way": 4, "references": 8, "rollouts": 8, "builds": 2}
# Least seconds of a section, where those before it took more than their share.
LEAST_S = 30.0
HEAD = "import torch\nimport torch.nn as nn\n"
MODEL = """

class ModelNew(nn.Module):
    def __init__(self, *given, **named):
        super().__init__()
        {}
"""
CALL = "\n    def forward(self, *given):\n        {}\n"
FAILING = {
    "parse": HEAD + "def broken(:\n",
    "import": HEAD + "import a_module_that_is_missing\n" + MODEL.format("pass") + CALL.format("return given[0]"),
    "construction": HEAD + MODEL.format("self.kernel = self.kernl") + CALL.format("return given[0]"),
}
KERNEL = """
__global__ void add(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + {number}.0f;
}}
void add_to(const float* x, float* y, int n) {{ add<<<(n + 255) / 256, 256>>>(x, y, n); }}
"""
WRAPPER = """
void add_to(const float* x, float* y, int n);
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    add_to(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
BUILD = """
from torch.utils.cpp_extension import load_inline
extension = load_inline(name="made_{number}", cpp_sources={wrapper!r}, cuda_sources={kernel!r}, functions=["run"]{more})
"""
# How torch's headers get into an extension, which is what takes time to build.
HEADERS = {
    "implicit": ("", ""),
    "wrapper only": (", no_implicit_headers=True", "#include <torch/extension.h>\n"),
}
Row = dict[str, Any]


class Report:
    """What was measured so far, written to a file after every row."""

    def __init__(self, path: Path, configuration: Row) -> None:
        self._path, self._configuration, self.rows = path, configuration, defaultdict(list)
        self._environment, self._rates = describe_environment(), {}
        self._start = time.monotonic()

    def add(self, section: str, row: Row) -> None:
        self.rows[section].append(row)
        rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
        print(f"{time.monotonic() - self._start:7.1f} s  {section:10} {str(rounded)[:200]}", flush=True)
        self.write()

    def write(self, **more: Any) -> None:
        self._rates |= more
        metrics = {**self._rates, "summary": self.summary(), "rows": self.rows}
        write_result(self._path, metrics, self._configuration, environment=self._environment)

    def summary(self) -> Row:
        """Return medians of seconds by section and what distinguishes its rows; rates of passes."""
        seconds_by_name: dict[str, list[float]] = defaultdict(list)
        for section, rows in self.rows.items():
            for row in rows:
                name = " ".join([section, *(str(row[key]) for key in ("what", "level") if key in row)])
                seconds_by_name[name].append(row["seconds"])
        return {
            name: {"median_s": statistics.median(times), "worst_s": max(times), "rows": len(times)}
            for name, times in sorted(seconds_by_name.items())
        }  # fmt: skip


class Memory(threading.Thread):
    """Peak resident memory of this process's family, MiB: of the largest process and of all together (proportional)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.begin()

    def begin(self) -> None:
        """Forget the peaks."""
        self.start_s, self.total_mib = time.monotonic(), 0.0
        self.largest: dict[str, float] = {"all": 0.0}  # with its parts, its generation, and when it was so large

    def run(self) -> None:
        while True:
            sizes = [{**size, "generation": at} for pid, at in family(os.getpid()) if (size := proportional_mib(pid))]
            largest = max(sizes, key=lambda size: size["all"])
            if largest["all"] > self.largest["all"]:
                self.largest = {**largest, "at": time.monotonic() - self.start_s}
            self.total_mib = max(self.total_mib, sum(size["all"] for size in sizes))
            time.sleep(1.0)


def family(pid: int) -> list[tuple[int, int]]:
    """Return the process and its descendants, each with its generation."""
    members = [(pid, 0)]
    for member, generation in members:
        try:
            for task in os.listdir(f"/proc/{member}/task"):
                children = Path(f"/proc/{member}/task/{task}/children").read_text().split()
                members += [(int(child), generation + 1) for child in children]
        except OSError:
            continue
    return members


def proportional_mib(pid: int) -> dict[str, float]:
    """Return a process's resident memory: all of it, and what is its own, of files, and shared; empty if it ended."""
    names = {"Pss:": "all", "Pss_Anon:": "own", "Pss_File:": "of_files", "Pss_Shmem:": "shared"}
    try:
        lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    except OSError:
        return {}
    return {names[words[0]]: int(words[1]) / 1024 for words in lines if words[0] in names}


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.monotonic()
    result = function()
    return time.monotonic() - start, result


def spread(problems: list[Problem], per_level: int) -> list[Problem]:
    """Return as many problems of each level, evenly over its sizes of text, levels in turn."""
    levels: dict[Any, list[Problem]] = defaultdict(list)
    for problem in problems:
        levels[problem.problem_id.partition("_")[0]].append(problem)
    picked = [group[:: max(1, len(group) // per_level)][:per_level] for group in levels.values()]
    return [group[number] for number in range(per_level) for group in picked if number < len(group)]


def level_of(problem: Problem) -> str:
    return problem.problem_id.partition("_")[0]


def failing(evaluator: Evaluator, problems: list[Problem], until: float) -> Iterator[Row]:
    """Measure candidates that fail before their first call; none of their problems is open."""
    evaluator.sandbox_level()
    for number, problem in enumerate(problems):
        for what, code in FAILING.items():
            if time.monotonic() > until:
                return
            seconds, verdict = timed(
                lambda text=f"{code}\n# {number}\n", problem=problem: evaluator.evaluate(problem, text)
            )
            opened = evaluator._problems.find(problem) is not None
            yield {"what": what, "level": level_of(problem), "problem": problem.problem_id, "seconds": seconds,
                   "reasons": verdict.reasons, "opened": opened}  # fmt: skip


def problems_one_by_one(evaluator: Evaluator, problems: list[Problem], until: float) -> Iterator[Row]:
    """Measure opening each problem, a right candidate, a second right one and a wrong one."""
    for problem in problems:
        common = {"level": level_of(problem), "problem": problem.problem_id}
        if time.monotonic() > until:
            return
        with evaluator._turns.candidate():
            try:
                seconds, session = timed(lambda problem=problem: evaluator._problems.session(problem, has_room=True))
            except Exception as error:
                yield {"what": "opening", **common, "seconds": 0.0, "failed": f"{type(error).__name__}: {error}"[:200]}
                continue
        yield {"what": "opening", **common, "seconds": seconds, "variation": session.variation,
               "mib": (session.own[0].input_bytes + session.own[0].output_bytes) / 2**20}  # fmt: skip
        right, wrong = as_candidate(problem.source), HEAD + MODEL.format("pass") + CALL.format("return 0 * given[0]")
        for what, code in {"first right": right, "known right": f"{right}\n# again\n", "known wrong": wrong}.items():
            if time.monotonic() > until:
                return
            seconds, verdict = timed(lambda code=code, problem=problem: evaluator.evaluate(problem, code))
            yield {"what": what, **common, "seconds": seconds, "speedup": verdict.speedup, "status": verdict.status,
                   "device_speedup": verdict.device_speedup, "reasons": verdict.reasons,
                   "detail": verdict.detail}  # fmt: skip


def other_way(problems: list[Problem], device: str, until: float) -> Iterator[Row]:
    """Measure the same problems, each reference against itself in an interpreter of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for problem in problems:
            if time.monotonic() > until:
                return
            files = [Path(folder) / f"{name}.py" for name in ("reference", "candidate")]
            files[0].write_text(problem.source)
            files[1].write_text(as_candidate(problem.source))
            command = [sys.executable, str(OTHER_WAY), *map(str, files), device]
            try:
                seconds, done = timed(
                    lambda command=command: subprocess.run(command, capture_output=True, text=True, timeout=300)
                )
                answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"error": done.stderr[-200:]}
            except (subprocess.TimeoutExpired, ValueError) as error:
                seconds, answer = 300.0, {"error": str(error)[:200]}
            yield {"level": level_of(problem), "problem": problem.problem_id, "seconds": seconds, **answer}


def through_a_pool(config: EvaluationConfig, pairs: list[tuple[str, Problem, str]], until: float) -> Iterator[Row]:
    """Evaluate candidates side by side; `at` is the second at which each was ready, since the pool was up."""
    with EvaluatorPool(config) as pool:
        start = time.monotonic()
        verdicts = pool.evaluate_all(pairs)
        for identity, verdict in verdicts:
            yield {
                "id": identity, "seconds": verdict.evaluation_s, "at": time.monotonic() - start,
                "status": verdict.status, "speedup": verdict.speedup, "reasons": verdict.reasons,
                "detail": verdict.detail,
            }  # fmt: skip
            if time.monotonic() > until:
                verdicts.close()
                return


def rollout_pairs(path: Path, problems: list[Problem], most: int) -> list[tuple[str, Problem, str]]:
    """Return distinct candidates of a run, in an order of chance that is always the same."""
    by_id = {}
    for problem in problems:
        level, _, number = problem.problem_id.removeprefix("level").partition("_")
        by_id[kernelbench_id(int(level), int(number))] = problem
    rows = pq.read_table(path, columns=["problem_id", "code"]).to_pylist()
    distinct = sorted({(row["problem_id"], row["code"]) for row in rows if row["code"] and row["problem_id"] in by_id})
    random.Random(0).shuffle(distinct)
    return [(f"{number}", by_id[name], code) for number, (name, code) in enumerate(distinct[:most])]


def builds(config: EvaluationConfig, at_once: int, until: float) -> Iterator[Row]:
    """Build inline extensions, `at_once` at a time, for each way to include torch's headers, precompiled ones last."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(at_once) as threads:
        for precompiled, (what, (more, include)) in itertools.product((False, True), HEADERS.items()):
            if time.monotonic() > until:
                return
            if precompiled:
                seconds, succeeded = timed(lambda: PrecompiledHeaders(Path(folder) / "headers").make(()))
                if what == next(iter(HEADERS)):
                    yield {"what": "precompiling", "seconds": seconds, "ok": succeeded}
                what, more = f"{what}, precompiled", f"{more}, keep_intermediates=True"  # a text of its own

            def build(number: int, more: str = more, include: str = include) -> tuple[float, Any]:
                wrapper = include + WRAPPER
                code = BUILD.format(number=number, wrapper=wrapper, kernel=KERNEL.format(number=number + 1), more=more)
                with Compiler(replace(config, compile_cache=folder)) as compiler:
                    return timed(lambda: compiler.compile(HEAD + code))

            for seconds, result in threads.map(build, range(at_once)):
                yield {"what": what, "seconds": seconds, "ok": result.ok, "detail": result.detail[:300]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, required=True, help="KernelBench's Parquet")
    parser.add_argument("--rollouts", type=Path, help="candidates of a run: columns problem_id and code")
    parser.add_argument("--device", default="cuda_train", help="preset of conf/evaluation")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--per-level", type=int, default=8, help="problems of each level that are looked at one by one")
    parser.add_argument("--only", nargs="*", choices=list(SHARES), default=list(SHARES))
    parser.add_argument("--at-once", type=int, default=16, help="builds side by side")
    parser.add_argument("--most", type=int, default=1000, help="rollouts")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("overrides", nargs="*", metavar="evaluation.key=value")
    arguments = parser.parse_args()

    config = evaluation_config(arguments.device, arguments.overrides)
    # References against themselves are to be timed, as a candidate is that runs something else.
    measured = evaluation_config(arguments.device, [*arguments.overrides, "evaluation.rules.same_operations=measure"])
    references = reference_pairs(arguments.kernelbench, slice(None))
    every = [problem for _, problem, _ in references]
    some, device = spread(every, arguments.per_level), config.device.partition(":")[0]
    memory = Memory()
    memory.start()
    report = Report(arguments.out, vars(arguments))
    sections = [name for name in arguments.only if name != "rollouts" or arguments.rollouts]
    end, left = time.monotonic() + 60 * arguments.minutes, sum(SHARES[name] for name in sections)

    def section(name: str, rows: Callable[[float], Iterator[Row]]) -> None:
        """Run one within its share of the time that is left."""
        nonlocal left
        if name not in sections:
            return
        start = time.monotonic()
        memory.begin()
        share_s = max(LEAST_S, (end - start) * SHARES[name] / left)
        until, left = start + share_s, left - SHARES[name]
        try:
            for row in rows(until):
                report.add(name, row)
        except Exception as error:  # one section that fails leaves the others their time
            report.write(**{f"{name}_failed": f"{type(error).__name__}: {error}"})
        # Candidates in flight when the share ends are waited for and not counted, so neither is that time.
        results = report.rows[name]
        passed = results[-1]["at"] if results and "at" in results[-1] else time.monotonic() - start
        rate = {f"{name}_s": passed, f"{name}_per_hour": 3600 * len(results) / passed}
        peak = {
            "largest_process_mib": memory.largest["all"], "largest_process": memory.largest,
            "all_processes_mib": memory.total_mib,
        }  # fmt: skip
        report.write(**rate, **{f"{name}_memory": peak})

    with Evaluator(measured) as evaluator:
        section("failing", lambda until: failing(evaluator, some, until))
        section("problems", lambda until: problems_one_by_one(evaluator, some, until))
    section("other_way", lambda until: other_way(some, device, until))
    random.Random(0).shuffle(references)
    section("references", lambda until: through_a_pool(measured, references, until))
    if arguments.rollouts:
        pairs = rollout_pairs(arguments.rollouts, every, arguments.most)
        section("rollouts", lambda until: through_a_pool(config, pairs, until))
    section("builds", lambda until: builds(config, arguments.at_once, until))
    counts = Counter(reason for row in report.rows["references"] for reason in row["reasons"])
    report.write(references_refused=dict(counts))


if __name__ == "__main__":
    run_command(main)
