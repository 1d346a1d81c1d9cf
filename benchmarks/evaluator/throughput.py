#!/usr/bin/env python3
"""Candidates per hour of one device, beside a process per candidate as KernelBench's own evaluator has it.

Three passes of ours over the same pairs: with an empty compile cache, with a warm one and new processes, and once more
in those processes, which know the problems by then (as in training). Then the other way, on every n-th pair.

    python -m benchmarks.evaluator.throughput --published cuda_l1_published_h100.parquet --rows 0:250:5 --device cuda
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import run_command
from benchmarks.common.results import write_result
from benchmarks.evaluator.common import evaluation_config, published_pairs, reference_pairs, rows_of
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.evaluation.pool import EvaluatorPool
from cudal1_ray.problems import Problem

Pairs = list[tuple[str, Problem, str]]


def one_pass(pool: EvaluatorPool, pairs: Pairs, console: Console) -> dict:
    start, rows = time.perf_counter(), []
    for identity, verdict in pool.evaluate_all(pairs):
        rows.append({"id": identity, **verdict.to_dict()})
        console.print(
            f"  {time.perf_counter() - start:6.1f} s  {identity:14} {verdict.status:9} {verdict.speedup:8.3f}  "
            f"{verdict.evaluation_s:5.1f} s  {','.join(verdict.reasons)} {verdict.detail[:110]}",
            highlight=False, markup=False,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    return {
        "candidates": len(rows), "seconds": seconds, "per_hour": 3600 * len(rows) / seconds,
        "accepted": sum(row["status"] == "accepted" for row in rows),
        "reasons": dict(Counter(reason for row in rows for reason in row["reasons"])), "verdicts": rows,
    }  # fmt: skip


def ours(pairs: Pairs, config: EvaluationConfig, console: Console) -> Iterator[tuple[str, dict]]:
    """Yield (name of the pass, its figures), as each is done."""
    # As many problems as processes, or the candidates of one would wait for the process that has it open.
    warm_up = [
        (f"warm-up-{i}", replace(pairs[0][1], problem_id=f"warm-up-{i}"), pairs[0][2]) for i in range(config.slots)
    ]
    with tempfile.TemporaryDirectory() as cache:
        config.compile_cache = cache
        for name in ("cold", "warm"):
            with EvaluatorPool(config) as pool:
                for _ in pool.evaluate_all(warm_up):  # processes start, libraries load
                    pass
                console.print(name)
                yield name, one_pass(pool, pairs, console)
                if name == "warm":
                    console.print("known")
                    yield "known", one_pass(pool, pairs, console)


def per_process(pairs: Pairs, device: str, console: Console) -> Iterator[tuple[str, dict]]:
    """Evaluate in a new interpreter per candidate, first without built extensions, then with those of that pass."""
    script = Path(__file__).with_name("per_candidate_process.py")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cold", "warm"):
            start, good = time.perf_counter(), 0
            for identity, problem, candidate in pairs:
                files = [Path(folder) / f"{identity}-{kind}.py" for kind in ("reference", "candidate")]
                files[0].write_text(problem.source)
                files[1].write_text(candidate)
                environment = {**os.environ, "TORCH_EXTENSIONS_DIR": f"{folder}/extensions/{identity}"}
                command = [sys.executable, str(script), *map(str, files), device]
                try:
                    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
                    answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"error": done.stderr[-200:]}
                except subprocess.TimeoutExpired:
                    answer = {"error": "timeout"}
                good += "speedup" in answer
                console.print(f"  {time.perf_counter() - start:6.1f} s  {identity:14} {answer}", markup=False)
            seconds = time.perf_counter() - start
            yield name, {
                "candidates": len(pairs), "seconds": seconds, "per_hour": 3600 * len(pairs) / seconds, "accepted": good,
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, help="CUDA-L1's Parquet; by default the bundled references")
    parser.add_argument("--rows", type=rows_of, default=slice(None), help="first:end:step")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--other-every", type=int, default=4, help="process-per-candidate takes long: every n-th pair; 0: none"
    )
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("overrides", nargs="*", metavar="evaluation.key=value")
    arguments = parser.parse_args()
    console = Console(width=160)
    if arguments.published:
        pairs = published_pairs(arguments.published, arguments.rows)
    else:
        pairs = reference_pairs(None, arguments.rows)
    config = evaluation_config(arguments.device, arguments.overrides)
    config.rules.same_operations = "measure"
    result: dict = {"ours": {}, "process_per_candidate": {}}

    def save() -> None:
        if arguments.out:
            write_result(arguments.out, result, vars(arguments) | {"slots": config.slots})

    def collect(passes: Iterator[tuple[str, dict]], into: dict[str, dict]) -> None:
        for name, row in passes:
            into[name] = row
            save()  # each pass takes minutes: one that is broken off does not take the others with it

    collect(ours(pairs, config, console), result["ours"])
    some = pairs[:: arguments.other_every] if arguments.other_every > 0 else []
    if some:
        console.print("a process per candidate")
        collect(per_process(some, arguments.device, console), result["process_per_candidate"])
    table = Table(title=f"{len(pairs)} candidates ({len(some)} for the process per candidate)")
    for column in ("", "candidates/hour", "median s", "accepted"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in result["ours"].items():
        median_s = statistics.median(verdict["evaluation_s"] for verdict in row["verdicts"])
        table.add_row(f"ours, {name}", f"{row['per_hour']:.0f}", f"{median_s:.2f}", str(row["accepted"]))
    for name, row in result["process_per_candidate"].items():
        seconds = row["seconds"] / row["candidates"]
        table.add_row(
            f"process per candidate, {name}", f"{row['per_hour']:.0f}", f"{seconds:.2f}", str(row["accepted"])
        )
    for name in result["process_per_candidate"]:
        result[f"ratio_{name}"] = result["ours"][name]["per_hour"] / result["process_per_candidate"][name]["per_hour"]
        table.add_row(f"ratio, {name}", f"{result[f'ratio_{name}']:.1f}x", "", "")
    console.print(table)
    save()


if __name__ == "__main__":
    run_command(main)
