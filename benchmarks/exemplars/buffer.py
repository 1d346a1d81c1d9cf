#!/usr/bin/env python3
"""The exemplar buffer at full size: how fast it takes, selects and reopens, and what it holds in memory.

Each part runs in a process of its own, so that what is measured is the buffer and not what fed it:

    fill     inserts in batches, saving after each; every batch repeats some earlier code in another layout
    use      opens the folder and draws by every strategy
    share    a writer goes on while a reader opens the folder over and over
    others   pandas, Polars and DuckDB read the Parquet files, those of them that are installed

Codes are the bundled candidates, each with a CUDA source of random lines; so every code is a program of its own. Their
identities are worked out from the normalised template instead of parsing each code, which would take most of an hour
and is done where candidates are made, not in the buffer; a sample is held against the real thing.

    python -m benchmarks.exemplars.buffer [--exemplars 1000000] [--problems 250] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import select as select_module
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

import cudal1_ray.problems
from benchmarks.common.command_line import run_command
from benchmarks.common.results import new_result, write_result
from cudal1_ray.config import config_dir
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, ExemplarsConfig, select
from cudal1_ray.exemplars.config import FAILURE_REASONS
from cudal1_ray.exemplars.exemplar import identity_of
from cudal1_ray.exemplars.features import code_features
from cudal1_ray.source.normal_form import normalise_code

CORPUS = Path(cudal1_ray.problems.__file__).parent / "corpus"
BATCH = 10_000
# Share of a batch that is old code in a new layout.
REPEATED = 0.05
SOURCE_LINES = 40
# Exemplars of each batch that are made by `Exemplar.new` as well, and compared.
CHECKED = 5
# Exemplars that the writer of `share` saves at once.
SHARED_BATCH = 1000
GIB = 2**30

# Parts of a CUDA source, with room for numbers.
LINES = (
    "    const int row{0} = blockIdx.x * {1} + threadIdx.x;",
    "    float4 v{0} = reinterpret_cast<const float4*>(input)[row{1}];",
    "    __shared__ float tile{0}[{1}];",
    "    sum{0} += __shfl_down_sync(0xffffffff, sum{1}, 16);",
    "    if (row{0} < n) output[row{0}] = fmaxf(v{1}.x, {1}.0f);",
    "    #pragma unroll {1}",
    "    for (int k = {0}; k < columns; k += {1}) acc{0} = fmaf(a[k], b[k + {1}], acc{0});",
    "    __syncthreads();",
)


def templates() -> list[tuple[str, str]]:
    """Return the bundled candidates, as they are and normalised."""
    codes = [path.read_text() for path in sorted(CORPUS.glob("*/*.py"))]
    return [(code, normalise_code(code)) for code in codes]


def make_code(corpus: list[tuple[str, str]], number: int, layout: int) -> tuple[str, str]:
    """Return a candidate of its own for each number, and its normal form; `layout` changes a comment only."""
    rng = np.random.default_rng(number)
    which, numbers = rng.integers(len(LINES), size=SOURCE_LINES), rng.integers(1000, size=(SOURCE_LINES, 2)).tolist()
    body = "\n".join(LINES[i].format(*pair) for i, pair in zip(which, numbers, strict=True))
    source = f"__global__ void kernel_{number}(const float* input, float* output, int n) {{\n{body}\n}}\n"
    raw, normal = corpus[number % len(corpus)]
    return f'# layout {layout}\n{raw}\n\nsource = """{source}"""\n', f"{normal}\nsource = {source!r}"


def make_batch(
    buffer: ExemplarBuffer, corpus: list[tuple[str, str]], first: int, count: int, problems: int
) -> list[Exemplar]:
    """Return exemplars of numbers first to first + count, their parents among the buffer's, and repeats."""
    rng, batch = np.random.default_rng(first), []
    for number in range(first, first + count):
        problem_id = f"problem-{number % problems}"
        earlier, failed = buffer.view(problem_id).ids, rng.random() < 0.2
        parents = rng.choice(len(earlier), 2, replace=False) if len(earlier) > 8 else ()
        code, normal = make_code(corpus, number, layout=0)
        exemplar = Exemplar(
            identity_of(problem_id, normal),
            problem_id,
            code,
            0.0 if failed else float(rng.lognormal(0.4, 0.5)),
            step=number // 1000,
            parent_ids=tuple(earlier[i].decode() for i in parents),
            reasons=(FAILURE_REASONS[int(rng.integers(5))],) if failed else (),
            features=code_features(normal),
        )
        if number < first + CHECKED:
            real = Exemplar.new(problem_id, code, exemplar.speedup)
            if (real.exemplar_id, real.features) != (exemplar.exemplar_id, exemplar.features):
                raise RuntimeError(f"the identity of code {number} is not that of its normal form")
        batch.append(exemplar)
    for number in rng.integers(first + count, size=int(REPEATED * count)).tolist():
        code, normal = make_code(corpus, number, layout=1)
        problem_id = f"problem-{number % problems}"
        batch.append(Exemplar(identity_of(problem_id, normal), problem_id, code, 9.0, features=code_features(normal)))
    return batch


def resident_gib() -> tuple[float, float]:
    """Return the memory of this process now, and at its highest (VmRSS, VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return int(kib["VmRSS"]) * 1024 / GIB, int(kib["VmHWM"]) * 1024 / GIB


def fill(folder: Path, exemplars: int, problems: int) -> dict[str, Any]:
    buffer, corpus = ExemplarBuffer.open(folder, create=True), templates()
    insert_s, save_s, offered, characters = 0.0, 0.0, 0, 0
    for first in range(0, exemplars, BATCH):
        batch = make_batch(buffer, corpus, first, min(BATCH, exemplars - first), problems)
        started = time.perf_counter()
        buffer.insert(batch)
        inserted = time.perf_counter()
        buffer.save()
        save_s += time.perf_counter() - inserted
        insert_s += inserted - started
        offered += len(batch)
        characters += sum(len(exemplar.code) for exemplar in batch)
    sample = batch[:200]
    started = time.perf_counter()
    for exemplar in sample:
        Exemplar.new(exemplar.problem_id, exemplar.code, exemplar.speedup)
    return {
        "offered": offered,
        "kept": len(buffer),
        "insert_per_s": offered / insert_s,
        "insert_and_save_per_s": offered / (insert_s + save_s),
        "made_per_s": len(sample) / (time.perf_counter() - started),
        "mean_characters": characters / offered,
        "peak_gib": resident_gib()[1],
        "disk_gib": sum(path.stat().st_size for path in folder.iterdir()) / GIB,
    }


def presets() -> list[ExemplarsConfig]:
    """Return every strategy, as `conf/exemplars` configures it."""
    files = sorted((config_dir() / "exemplars").glob("*.yaml"))
    return [
        OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ExemplarsConfig), OmegaConf.load(file)))
        for file in files
    ]


def use(folder: Path, draws: int) -> dict[str, Any]:
    started = time.perf_counter()
    buffer = ExemplarBuffer.open(folder)
    open_s, (opened_gib, _) = time.perf_counter() - started, resident_gib()
    problem_ids, rng, strategies = buffer.problem_ids(), np.random.default_rng(1), {}
    for config in presets():
        started = time.perf_counter()
        for problem_id in problem_ids:  # islands replay all exemplars of a problem at its first draw
            select(buffer, problem_id, config, rng)
        first_draws_s = time.perf_counter() - started
        wall, cpu = np.empty(draws), np.empty(draws)
        for i, problem in enumerate(rng.integers(len(problem_ids), size=draws).tolist()):
            started, worked = time.perf_counter(), time.thread_time()
            selection = select(buffer, problem_ids[problem], config, rng)
            cpu[i], wall[i] = time.thread_time() - worked, time.perf_counter() - started
            if config.count and not selection.exemplars:
                raise RuntimeError(f"{config.strategy} found nothing to show of {problem_ids[problem]}")
        p50, p99 = (np.percentile(wall, [50, 99]) * 1e3).tolist()
        strategies[config.strategy] = {
            "p50_ms": p50,
            "p99_ms": p99,
            "cpu_p99_ms": float(np.percentile(cpu, 99) * 1e3),
            "first_draws_s": first_draws_s,
        }
    resident, peak = resident_gib()
    return {
        "exemplars": len(buffer),
        "problems": len(problem_ids),
        "open_s": open_s,
        "opened_gib": opened_gib,
        "resident_gib": resident,
        "peak_gib": peak,
        "strategies": strategies,
    }


def write_on(folder: Path, problems: int) -> dict[str, Any]:
    """Insert and save a thousand at a time until its input ends."""
    buffer, corpus, first = ExemplarBuffer.open(folder), templates(), 10**8
    print("ready", flush=True)
    saves = 0
    while not select_module.select([sys.stdin], [], [], 0)[0]:
        buffer.insert(make_batch(buffer, corpus, first, SHARED_BATCH, problems)[:SHARED_BATCH])
        buffer.save()
        first += SHARED_BATCH
        saves += 1
    return {"saves": saves, "exemplars": len(buffer)}


def read_along(folder: Path, already: int) -> dict[str, Any]:
    """Open the folder some times; return how many exemplars it had each time. Raise when a state is not whole."""
    sizes, rng = [], np.random.default_rng(3)
    for _ in range(4):
        buffer = ExemplarBuffer.open(folder)
        if (len(buffer) - already) % SHARED_BATCH:
            raise RuntimeError(f"a reader saw {len(buffer)} exemplars: a part of a save")
        for problem_id in buffer.problem_ids():
            select(buffer, problem_id, ExemplarsConfig(), rng)
        sizes.append(len(buffer))
    return {"seen": sizes}


def others(folder: Path) -> dict[str, Any]:
    """Return rows and accepted exemplars as each library counts them, and its version."""
    files = sorted(str(path) for path in folder.glob("*.parquet"))
    counts: dict[str, Callable[[Any], tuple[int, int]]] = {
        "pandas": lambda module: _count(
            module.concat(module.read_parquet(file, columns=["speedup"]) for file in files)["speedup"].to_numpy()
        ),
        "polars": lambda module: _count(module.read_parquet(files, columns=["speedup"])["speedup"].to_numpy()),
        "duckdb": lambda module: module.sql(
            f"select count(*), count(*) filter (speedup > 0) from read_parquet({files})"
        ).fetchall()[0],
    }
    counts_by_library = {}
    for name, count in counts.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        rows, accepted = count(module)
        counts_by_library[name] = {"version": module.__version__, "rows": rows, "accepted": accepted}
    return counts_by_library


def _count(speedup: np.ndarray) -> tuple[int, int]:
    return len(speedup), int((speedup > 0).sum())


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    part.__name__: part for part in (fill, use, write_on, read_along, others)
}


def start(part: str, folder: Path, *arguments: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "benchmarks.exemplars.buffer", "--part", part, str(folder), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen) -> dict[str, Any]:
    output, part = process.communicate()[0], process.args[3]
    if process.returncode:
        raise SystemExit(f"a part of the benchmark failed: {part}")
    print(f"{part}: {output.splitlines()[-1]}", file=sys.stderr, flush=True)
    return json.loads(output.splitlines()[-1])


def share(folder: Path, problems: int, already: int) -> dict[str, Any]:
    writer = start("write_on", folder, problems)
    writer.stdout.readline()
    readers = [start("read_along", folder, already) for _ in range(2)]
    sizes = [size for reader in readers for size in result(reader)["seen"]]
    return {**result(writer), "seen": sizes}


@dataclass(frozen=True)
class Row:
    """One figure. `target`: what it must be, as text, empty where nothing is asked; `met`: whether it is. `detail`:
    what helps to read it.
    """

    name: str
    figure: float
    unit: str
    target: str = ""
    met: bool | None = None
    detail: str = ""


def at_most(name: str, figure: float, unit: str, limit: float, detail: str = "") -> Row:
    return Row(name, figure, unit, f"<= {limit:g}", figure <= limit, detail)


def at_least(name: str, figure: float, unit: str, limit: float) -> Row:
    return Row(name, figure, unit, f">= {limit:,}", figure >= limit)


def equal(name: str, figure: int, unit: str, expected: int) -> Row:
    return Row(name, figure, unit, f"= {expected:,}", figure == expected)


def measure(folder: Path, exemplars: int, problems: int, draws: int) -> list[Row]:
    filled = result(start("fill", folder, exemplars, problems))
    used = result(start("use", folder, draws))
    read = result(start("others", folder))
    shared = share(folder, problems, exemplars)
    rows = [
        at_least(f"insert in batches of {BATCH:,}", filled["insert_per_s"], "exemplars/s", 10_000),
        Row("insert and save", filled["insert_and_save_per_s"], "exemplars/s"),
        Row("make exemplars (parse, normalise), one process", filled["made_per_s"], "exemplars/s"),
        equal(f"kept of {filled['offered']:,} offered", filled["kept"], "exemplars", exemplars),
        Row("mean length of a code", filled["mean_characters"], "characters"),
        Row("on disk", filled["disk_gib"], "GiB"),
        at_most("highest resident while filling, generator included", filled["peak_gib"], "GiB", 2.0),
        at_most("reopened", used["open_s"], "s", 10.0),
        at_most("resident when reopened", used["opened_gib"], "GiB", 2.0),
        at_most("highest resident, reopened and drawn from by all", used["peak_gib"], "GiB", 2.0),
    ]
    for name, timed in used["strategies"].items():
        detail = f"p50 {timed['p50_ms']:.2f}; p99 of CPU time {timed['cpu_p99_ms']:.2f}"
        rows.append(at_most(f"selection, {name}, p99", timed["p99_ms"], "ms", 1.0, detail))
    slowest = max(used["strategies"], key=lambda name: used["strategies"][name]["first_draws_s"])
    ready_s = used["open_s"] + used["strategies"][slowest]["first_draws_s"]
    rows.append(at_most(f"reopened, every problem drawn from once ({slowest})", ready_s, "s", 10.0))
    states = len(set(shared["seen"]))
    rows.append(
        Row("whole states seen beside the writer", states, f"of {len(shared['seen'])} openings", ">= 2", states >= 2)
    )
    for name, counted in read.items():
        rows.append(equal(f"rows read by {name} {counted['version']}", counted["rows"], "rows", exemplars))
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--part"]:
        part, folder, *arguments = sys.argv[2:]
        print(json.dumps(PARTS[part](Path(folder), *map(int, arguments))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exemplars", type=int, default=1_000_000)
    parser.add_argument("--problems", type=int, default=250)
    parser.add_argument("--draws", type=int, default=10_000, help="selections per strategy")
    parser.add_argument("--out", type=Path, default=new_result("exemplars"))
    arguments = parser.parse_args()

    load_before = os.getloadavg()[0]  # on a machine with other work, p99 measures that work
    with tempfile.TemporaryDirectory(prefix="cudal1-exemplars-") as folder:
        rows = measure(Path(folder), arguments.exemplars, arguments.problems, arguments.draws)
    title = f"{arguments.exemplars:,} exemplars over {arguments.problems} problems"
    table = Table("", "figure", "", "target", "met", "", title=title)
    for row in rows:
        figure = f"{row.figure:,.0f}" if row.figure >= 100 else f"{row.figure:.2f}"
        table.add_row(row.name, figure, row.unit, row.target, {True: "yes", False: "no", None: ""}[row.met], row.detail)
    console = Console()
    console.print(table)
    content = {
        "exemplars": arguments.exemplars,
        "rows": [asdict(row) for row in rows],
        "load_average": {"before": load_before, "after": os.getloadavg()[0]},
    }
    write_result(arguments.out, content, vars(arguments))
    console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    run_command(main)
