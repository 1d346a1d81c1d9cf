#!/usr/bin/env python3
"""A job of `/v1/optimize` at a server of its own: how long each step takes, and what becomes of its candidates.

    python -m benchmarks.serving.optimize_job --policy FOLDER [--rounds 2] [--samples 8] [key=value ...]

The module is a gate. The server knows an inline CUDA kernel for it (`optimize.known_run`), the prompt's worked example,
so that a job measures one whatever the policy writes. Writes into benchmarks/results/optimize-job/. psutil is needed
besides the package.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.common.command_line import run_command
from benchmarks.common.results import new_result, write_result
from benchmarks.serving.common import start_ours
from cudal1_ray.analysis.techniques import find_techniques
from cudal1_ray.commands.optimize_progress import JobProgress
from cudal1_ray.commands.optimize_server import optimize_there
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.prompting.builder import EXAMPLES
from cudal1_ray.serving.served_policy import find_policy

MODULE = Path(__file__).with_name("gate.py")
WORKED_KERNEL = EXAMPLES / "cuda.py"
# Techniques of candidates with a kernel of their own.
KERNELS = ("Triton", "inline CUDA")


class Recorder(JobProgress):
    """Prints the progress of a job as `cudal1 optimize` does, and keeps its events."""

    def __init__(self, console: Console):
        super().__init__(console)
        self.events: list[dict[str, Any]] = []

    def __call__(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        super().__call__(event)


def write_known_run(folder: Path) -> None:
    """Write what `optimize.known_run` reads of a run: the module as its problem, and the kernel as its exemplar."""
    (folder / "problems").mkdir(parents=True)
    (folder / "problems" / MODULE.name).write_text(MODULE.read_text())
    problems = ProblemsConfig(source="folder", path=str(folder / "problems"))
    (folder / "config.yaml").write_text(json.dumps({"problems": asdict(problems)}))
    (problem,) = load_problems(problems)
    buffer = ExemplarBuffer.open(folder / "exemplars", create=True)
    buffer.insert([Exemplar.new(problem.problem_id, WORKED_KERNEL.read_text(), 1.0)])
    buffer.save()


def run_job(policy: Path, request: dict[str, Any], overrides: list[str], console: Console) -> dict[str, Any]:
    """Start a server, follow one job there to its end and stop the server; return what was measured.

    Raises:
        RuntimeError: the server did not start.
        UserError: the job was refused or failed.
    """
    progress = Recorder(console)
    with tempfile.TemporaryDirectory(prefix="optimize-job-") as folder, progress:
        run, jobs = Path(folder) / "run", Path(folder) / "jobs"
        write_known_run(run)
        settings = [f"optimize.jobs_dir={jobs}", f"optimize.known_run={run}", *overrides]
        started = time.monotonic()
        server = start_ours(policy, ["evaluation.required_sandbox=namespaces", *settings])
        try:
            server.wait_until_up()
            start_s = time.monotonic() - started
            console.print(f"the server is up after {start_s:.1f} s")
            began = time.time()
            result = optimize_there(request | {"source": MODULE.read_text()}, server.url, "", progress)
            job_s = time.time() - began
        finally:
            server.stop()
        buffers = map(ExemplarBuffer.open, jobs.glob("*/exemplars"))
        code_by_id = {exemplar.exemplar_id: exemplar.code for buffer in buffers for exemplar in buffer}
    rows = candidate_rows(progress.events, code_by_id, began)
    return {
        "server_start_s": round(start_s, 2),
        "job_s": round(job_s, 2),
        "of_policy": count_kinds([row for row in rows if row["round"]]),
        "result": {key: value for key, value in result.items() if key != "tried"},
        "steps": [
            {"step": event.get("baseline") or event["type"], "s": round(event["time"] - began, 2)}
            for event in progress.events
            if event["type"] != "candidate"
        ],
        "candidates": rows,
    }


def candidate_rows(events: list[dict[str, Any]], code_by_id: dict[str, str], began: float) -> list[dict[str, Any]]:
    """Return a row for each candidate: its round (0: known before), the kind of its code, its verdict, and when it had
    that, in seconds since `began`.
    """
    rows = []
    for event in events:
        if event["type"] in ("exemplar", "candidate"):
            kind = kind_of(code_by_id.get(event.get("candidate", ""), ""))
            row = {"round": event.get("round", 0), "kind": kind, "s": round(event["time"] - began, 2)}
            verdict = ("status", "reasons", "speedup", "speedup_low", "speedup_high")
            rows.append(row | {name: event[name] for name in verdict if name in event})
    return rows


def kind_of(code: str) -> str:
    """Return "Triton" or "inline CUDA" (both: with a plus) for code with own kernels, else "no kernel"; "no code" for a
    candidate without any.
    """
    names = [technique.name for technique in find_techniques(code) if technique.name in KERNELS]
    return " + ".join(names) or ("no kernel" if code else "no code")


def count_kinds(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return how many candidates there are of each kind, and how many of those were accepted."""
    accepted = Counter(row["kind"] for row in rows if row["status"] == "accepted")
    written = Counter(row["kind"] for row in rows)
    return {kind: {"candidates": count, "accepted": accepted[kind]} for kind, count in written.most_common()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", required=True, help="a run, a checkpoint or a model folder")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--samples", type=int, default=8, help="candidates per round")
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit of the job")
    parser.add_argument("--device", default="cpu", help="in the file's name")
    parser.add_argument("--out", type=Path, help="default: a new file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of conf/serving")
    arguments = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of `finally`: the server is not left behind
    console = Console()
    request = {"rounds": arguments.rounds, "samples_per_round": arguments.samples, "time_limit_s": arguments.seconds}
    policy = find_policy(arguments.policy).folder
    metrics = run_job(policy, request, arguments.overrides, console)
    out = arguments.out or new_result("optimize-job", arguments.device)
    write_result(out, metrics, vars(arguments))
    result = metrics["result"]
    console.print(f"{metrics['job_s']:.1f} s, candidates of the policy: {metrics['of_policy']}")
    console.print(f"found: {result['speedup']:.2f}x, {result['origin']}" if result["found"] else result["message"])
    console.print(f"written: {out}")


if __name__ == "__main__":
    run_command(main)
