"""Run of the CUDA suite without pytest: prints a table, writes a JSON file, and goes on after a sample that fails."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from cuda_suite import (
    DEFAULT_CONTROL,
    RISKY,
    WRITERS,
    Row,
    Sample,
    cuda_config,
    evaluate,
    evaluate_control,
    keeps_files,
    order,
    read_samples,
)

from cudal1_ray.analysis import describe_environment
from cudal1_ray.evaluation import Compiler, EvaluationConfig, Evaluator


def build_all(samples: list[Sample], config: EvaluationConfig, workers: int) -> None:
    """Fill the compile cache, several builds at a time, each in a compiler of its own.

    A build runs the candidate's import, so candidates that write files wherever they can wait until the sandbox's level
    is known.
    """
    chosen = [sample for sample in samples if "cpp_extension" in sample.code and not sample.name.startswith(WRITERS)]

    def build(sample: Sample) -> None:
        start = time.monotonic()
        try:
            with Compiler(config) as compiler:
                result = compiler.compile(sample.code, sample.problem.source)
            state = "cached" if result.cached else result.reason or "built"
            print(f"  {sample.name:40} {state:16} {time.monotonic() - start:6.1f} s  {result.detail[:160]}", flush=True)
        except Exception as error:
            print(f"  {sample.name:40} {type(error).__name__}: {error}", flush=True)

    with ThreadPoolExecutor(max(1, workers)) as pool:
        list(pool.map(build, chosen))


class Overtime(Exception):
    """A sample took longer than the run's limit."""


class Run:
    """Evaluates samples one after another; a failure in one, even of its evaluator, does not affect the next."""

    def __init__(self, arguments: argparse.Namespace, arch: str) -> None:
        self.arguments, self.arch = arguments, arch
        self.evaluators: dict[str, Evaluator] = {}
        self.honest = {sample.name: sample for sample in read_samples("honest")}
        self.rows: list[Row] = []
        self.sandbox, self.environment = "", describe_environment()  # the sandbox's level in which these were evaluated
        out = Path(arguments.json)
        if arguments.resume and out.exists():
            self.rows = [Row(**row) for row in json.loads(out.read_text())["rows"]]

    def evaluator(self, kind: str) -> Evaluator:
        if kind not in self.evaluators:
            config = cuda_config(kind, self.arguments.compile_cache, self.arch)
            self.evaluators[kind] = Evaluator(config, turns_file=self.arguments.turns_file)
            self.sandbox = self.evaluators[kind].sandbox_level()
        return self.evaluators[kind]

    def close(self) -> None:
        for evaluator in self.evaluators.values():
            try:
                evaluator.close()
            except Exception as error:
                print(f"  closing: {error}", flush=True)
        self.evaluators = {}

    def wants_control(self, sample: Sample) -> bool:
        """Return whether a control follows: after every Nth adversarial sample, and after samples that may do harm."""
        every = self.arguments.control_every
        if sample.kind != "adversarial" or every <= 0:
            return False
        return sample.name.startswith(RISKY) or sample.control or len(self.rows) % every == 0

    def evaluate_sample(self, sample: Sample) -> Row:
        row = Row(sample.name, sample.kind)
        signal.signal(signal.SIGALRM, _overtime)
        signal.alarm(self.arguments.sample_seconds)
        try:
            evaluator = self.evaluator(sample.kind)
            if sample.name.startswith(WRITERS) and not keeps_files(evaluator):
                row.verdict, row.detail = "skipped", "it would write anywhere: the sandbox here keeps no files"
                return row
            row = evaluate(sample, evaluator)
            signal.alarm(self.arguments.sample_seconds)
            if self.wants_control(sample):
                evaluate_control(sample, self.honest, evaluator, row)
        except Exception as error:
            row.verdict = row.verdict or "failed"
            last = traceback.extract_tb(error.__traceback__)[-1]
            row.complaints.append(f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"[:300])
            signal.alarm(30)
            try:
                self.close()
            except Exception:
                self.evaluators = {}
        finally:
            signal.alarm(0)
        return row

    def all(self, samples: list[Sample]) -> bool:
        """Return whether every sample was evaluated without complaints."""
        done = {(row.kind, row.sample) for row in self.rows}
        left = 0
        try:
            for sample in samples:
                if (sample.kind, sample.name) in done:
                    continue
                if time.monotonic() - self.arguments.began > self.arguments.seconds:
                    left += 1
                    continue
                self.rows.append(self.evaluate_sample(sample))
                print(line(self.rows[-1]), flush=True)
                self.save()
        finally:
            self.close()
            self.save()
        bad = [row for row in self.rows if row.complaints]
        print(f"{len(self.rows)} evaluated in the sandbox {self.sandbox or '-'}, ", end="")
        print(f"{len(bad)} with complaints, {left} not reached", flush=True)
        for row in bad:
            print(f"  {row.kind} {row.sample}: {'; '.join(row.complaints)}\n      {row.detail[:200]}", flush=True)
        return not bad and not left

    def save(self) -> None:
        out = Path(self.arguments.json)
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_name(out.name + ".part")
        report = {"sandbox": self.sandbox, "environment": self.environment}
        part.write_text(json.dumps(report | {"rows": [asdict(row) for row in self.rows]}, indent=1))
        os.replace(part, out)


def _overtime(*_: object) -> None:
    raise Overtime("no end of it")


def line(row: Row) -> str:
    verdict = row.verdict + (" " + ",".join(row.reasons) if row.reasons else "")
    mark = "BAD " if row.complaints else "ok  "
    return (
        f"{mark}{row.kind:6} {row.sample:36} {verdict:34} gate={row.gate or '-':20} {row.speedup:7.3f}x "
        f"[{row.low:.3f}, {row.high:.3f}] {row.seconds:6.1f} s  {row.control}"
    )


def main(argv: list[str] | None = None) -> int:
    """Return exit code 0 when every sample was evaluated as expected, 1 otherwise, 2 without a CUDA device."""
    parser = argparse.ArgumentParser(description="The CUDA suite without pytest.")
    parser.add_argument("--json", required=True, help="where the rows go (rewritten after every sample)")
    parser.add_argument("--kind", choices=("adversarial", "honest", "both"), default="both")
    parser.add_argument("--only", default="", help="regular expression that a sample's name must contain")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new sample is begun later than this")
    parser.add_argument("--sample-seconds", type=int, default=300, help="longest time for one sample")
    parser.add_argument(
        "--control-every", type=int, default=1, help="honest one after every Nth adversarial one; 0: never"
    )
    parser.add_argument("--resume", action="store_true", help="leave out what the JSON file has already")
    parser.add_argument("--compile-cache", default="", help="folder of built extensions, kept from run to run")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="builds at a time")
    parser.add_argument(
        "--shard", default="0/1", help="i/n: every nth sample from the ith; such runs may go side by side"
    )
    parser.add_argument("--turns-file", default="", help="a path that runs side by side share: one measures at a time")
    parser.add_argument("--compile-only", action="store_true", help="build the extensions and stop")
    parser.add_argument("--arch", default="", help="CUDA architecture, e.g. 9.0; by default that of the GPU")
    arguments = parser.parse_args(argv)
    arguments.began = time.monotonic()
    import torch

    if not torch.cuda.is_available() and not (arguments.compile_only and arguments.arch):
        print("no CUDA device (building without one needs --compile-only and --arch)")
        return 2
    arch = arguments.arch or ".".join(map(str, torch.cuda.get_device_capability()))
    samples = [sample for kind in ("honest", "adversarial") for sample in read_samples(kind)]
    chosen = [s for s in samples if arguments.kind in (s.kind, "both") and re.search(arguments.only, s.name)]
    first, shards = map(int, arguments.shard.split("/"))
    chosen = order(chosen)[first::shards]
    with tempfile.TemporaryDirectory(prefix="extensions-") as folder:
        arguments.compile_cache = arguments.compile_cache or folder
        return run(arguments, samples, chosen, arch)


def run(arguments: argparse.Namespace, samples: list[Sample], chosen: list[Sample], arch: str) -> int:
    """Build the selected samples, several at a time, then evaluate one after another."""
    controls = {sample.control or DEFAULT_CONTROL for sample in chosen if sample.kind == "adversarial"}
    built = chosen + [sample for sample in samples if sample.kind == "honest" and sample.name in controls]
    print(f"building with {arguments.workers} workers", flush=True)
    build_all(list(dict.fromkeys(built)), cuda_config("adversarial", arguments.compile_cache, arch), arguments.workers)
    if arguments.compile_only:
        return 0
    return 0 if Run(arguments, arch).all(chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
