"""The paper's table from the run folders of `benchmarks.paper.run`: figures, curves, techniques, bars.

    python -m benchmarks.paper.collect --runs runs/table --device h100 [--out FILE] [--markdown FILE]
    python -m benchmarks.paper.collect --runs packed-1 packed-2 benchmarks/results/arms/FILE.json --device h100

`--runs` takes folders of runs, folders with what `benchmarks.paper.run --pack` wrote, and results of this command, from
as many machines as there are. Where two have the same arm and seed, the one assessed last counts. An arm or seed that
none of them has is shown as not yet run. `docs/generate.py` puts the newest result into the documentation.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import run_command
from benchmarks.common.results import current_commit, new_result, write_result
from benchmarks.paper.arms import ARMS
from benchmarks.paper.figures import Samples, columns, compare, samples_of
from benchmarks.paper.measured import CONTROL, arm_runs, measure
from benchmarks.paper.table import FIGURE_HEADINGS, kinds, markdown, table_rows
from benchmarks.paper.travel import opened_tables
from cudal1_ray.errors import UserError
from cudal1_ray.files import read_json_lines, write_atomically

# (first, second) of the comparisons that the claims rest on.
PAIRS = (
    ("base", "stage1"),
    ("stage1", "stage2"),
    ("stage1", "stage2-long"),
    ("stage1", "bucket"),
    ("stage1", "grpo"),
    ("stage2", "bucket"),
    ("stage2-long", "bucket"),
    ("grpo", "bucket"),
    ("evolution", "bucket"),
    ("random", "bucket"),
    ("island", "bucket"),
)
# Of a comparison: training problems, each policy asked as it was trained.
AS_TRAINED = "train, as trained"
# Arms that stand for "stages 1 + 2" in the first bar: the first of them that is assessed.
BEFORE_STAGE_3 = ("stage2-long", "stage2", "stage1")
Records = dict[str, dict[str, dict[str, Any]]]  # arm -> seed -> what `measure` returns


def collect(sources: Sequence[Path], planned_seeds: Sequence[int] = (1, 2, 3)) -> dict[str, Any]:
    """Return what the results file holds.

    Args:
        sources: folders of runs, folders of packed ones, result files of this command.
        planned_seeds: that the table is to have, besides those that it has.

    Raises:
        UserError: a source is none of these, or no arm has begun in any.
    """
    records: Records = {}
    commands: list[dict[str, Any]] = []
    for source in sources:
        _take(records, commands, *_read(source))
    if not records:
        raise UserError(f"{', '.join(map(str, sources))}: no arm has begun there; run benchmarks.paper.run first")
    seeds = {str(seed) for seed in planned_seeds}.union(*records.values())
    return result_of(records) | {
        "planned_seeds": sorted(seeds, key=int),
        "commands": sorted(commands, key=lambda row: row["at"]),
    }


def result_of(records: Records) -> dict[str, Any]:
    """Return the figures, comparisons and bars of these runs."""
    records = {arm: dict(sorted(records[arm].items(), key=lambda item: int(item[0]))) for arm in ARMS if arm in records}
    # An arm whose samples fail before a problem is opened does not show that it is degenerate: another does.
    degenerate = {problem for of in records.values() for record in of.values() for problem in record["degenerate"]}
    sets = {(arm, kind): samples for arm, of in records.items() for kind, samples in _samples(of, degenerate).items()}
    return {
        "degenerate": sorted(degenerate),
        "arms": {
            arm: {
                "label": ARMS[arm].label,
                "assessed": {kind: columns(samples) for (name, kind), samples in sets.items() if name == arm},
                "techniques": _techniques(_finished(of)),
                "changes": _changes(_finished(of)),
                "seeds": of,
            }
            for arm, of in records.items()
        },
        "comparisons": _comparisons(sets),
        "bars": _bars(sets),
    }


def only_seed(result: Mapping[str, Any], arm: str, seed: str) -> dict[str, Any]:
    """Return a result with one seed of one arm, beside the base model, on the same problems."""
    seeds = {name: of["seeds"] for name, of in result["arms"].items() if name in ("base", arm)}
    seeds[arm] = {key: record for key, record in seeds.get(arm, {}).items() if key == seed}
    records = {
        name: {key: dict(record, degenerate=result["degenerate"]) for key, record in of.items()}
        for name, of in seeds.items()
        if of
    }
    return result_of(records) | {"planned_seeds": [seed]}


def _read(source: Path) -> tuple[Records, list[dict[str, Any]]]:
    """Return the runs of a source and the commands that made them."""
    if source.is_file():
        return _read_result(source)
    records: Records = {}
    with opened_tables([source]) as (folder,):
        for run in arm_runs(folder):
            records.setdefault(run.arm, {})[run.seed] = measure(run) | {"collected_at_commit": current_commit()}
        return records, list(read_json_lines(folder / "attempts.jsonl"))


def _read_result(file: Path) -> tuple[Records, list[dict[str, Any]]]:
    try:
        result = json.loads(file.read_text())["metrics"]
        return {arm: of["seeds"] for arm, of in result["arms"].items() if arm in ARMS}, result["commands"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{file}: no result of benchmarks.paper.collect") from None


def _take(records: Records, commands: list[dict[str, Any]], more: Records, more_commands: list[dict[str, Any]]) -> None:
    """Add the runs and commands of another source; of a run that both have the later assessment or the longer run."""
    for arm, of in more.items():
        for seed, record in of.items():
            there = records.setdefault(arm, {}).get(seed)
            if there is None or _progress(record) > _progress(there):
                records[arm][seed] = record
    commands += [row for row in more_commands if row not in commands]


def _progress(record: Mapping[str, Any]) -> tuple[float, int]:
    return record.get("at", 0.0), record["samples"]


def _samples(records: Mapping[str, Mapping[str, Any]], left_out: set[str]) -> dict[str, Samples]:
    """Return the samples of an arm by kind, over the seeds that were assessed so.

    Args:
        left_out: problems.
    """
    by_kind: dict[str, dict[str, Any]] = {}
    for seed, record in records.items():
        for kind, problems in record["assessed"].items():
            by_kind.setdefault(kind, {})[seed] = {p: of for p, of in problems.items() if p not in left_out}
    packed = {kind: samples_of(by_seed) for kind, by_seed in by_kind.items()}
    return {kind: samples for kind, samples in packed.items() if samples is not None}


def _finished(records: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the assessed runs. One under way has other steps and fewer samples, which do not compare with theirs."""
    return [record for record in records.values() if record["assessed"]]


def _techniques(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return how many accepted candidates use each technique, most used first, and their median speedup."""
    speedups: dict[str, list[float]] = {}
    for record in records:
        for name, of_run in record["techniques"].items():
            speedups.setdefault(name, []).extend(of_run)
    return {
        name: {"candidates": len(of), "median_speedup": median(of)}
        for name, of in sorted(speedups.items(), key=lambda item: (-len(item[1]), item[0]))
    }


def _changes(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """Return the samples, the accepted and the faster ones of each change to exemplars, by steps, over all seeds."""
    counts: dict[str, dict[str, list[int]]] = {}
    for record in records:
        for steps, changes in record.get("changes", {}).items():  # an older result has none
            of_steps = counts.setdefault(steps, {name: [0, 0, 0] for name in changes})
            for name, of_run in changes.items():
                of_steps[name] = [total + more for total, more in zip(of_steps[name], of_run, strict=True)]
    return counts


def as_trained(sets: Mapping[tuple[str, str], Samples], arm: str) -> Samples | None:
    """Return an arm's samples of training problems, asked as its policy was trained: with exemplars where its run shows
    them; None where it is not assessed.
    """
    return sets.get((arm, "train with exemplars"), sets.get((arm, "train")))


def _comparisons(sets: Mapping[tuple[str, str], Samples]) -> list[dict[str, Any]]:
    comparisons = []
    for first, second in PAIRS:
        pair = (first, second)
        kinds = {AS_TRAINED: [as_trained(sets, arm) for arm in pair]}
        if any((arm, "train with exemplars") in sets for arm in pair):  # else "train" is the same once more
            kinds["train"] = [sets.get((arm, "train")) for arm in pair]
        kinds["held_out"] = [sets.get((arm, "held_out")) for arm in pair]
        for split, sides in kinds.items():
            if None not in sides and (result := compare(*sides)) is not None:
                comparisons.append({"first": first, "second": second, "split": split, **result})
    return comparisons


def _bars(sets: Mapping[tuple[str, str], Samples]) -> list[dict[str, Any]]:
    """Return what the table is to show, with the figures that decide it; `met` is None where an arm is missing."""
    before = next((arm for arm in BEFORE_STAGE_3 if (arm, "train") in sets), BEFORE_STAGE_3[-1])
    others = {ARMS[arm].label.removeprefix("+ "): as_trained(sets, arm) for arm in (before, "grpo")}
    others["its weights before stage 3 with its exemplars"] = sets.get(("bucket", CONTROL))
    bars = []
    for label, other in others.items():
        sides = [other, as_trained(sets, "bucket")]
        result = compare(*sides) if None not in sides else None
        name = f"{ARMS['bucket'].label.removeprefix('+ ')} beats {label}, geometric mean on training problems"
        met = result and min(of["interval"][0] for of in (result, result["without_copies"])) > 1.0
        bars.append({"bar": name, "met": met, **(result or {})})
    held_out = {arm: sets[arm, "held_out"] for arm in ("base", "stage1", "bucket") if (arm, "held_out") in sets}
    bar: dict[str, Any] = {"bar": "held-out success at least twice the base model's", "met": None}
    if {"base", "bucket"} <= held_out.keys():
        bar |= {name: {key: columns(of)[key] for key in ("success", "intervals")} for name, of in held_out.items()}
        bar["met"] = bar["bucket"]["success"] > 0 and bar["bucket"]["success"] >= 2 * bar["base"]["success"]
    return [*bars, bar]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, nargs="+", default=[Path("runs/table")], help="folders or results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="that the table is to have in the end")
    parser.add_argument("--device", default="cpu", help="in the file's name, for example h100")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/arms/<date>-<device>-<commit>.json")
    parser.add_argument("--markdown", type=Path, help="the tables as a file of their own")
    arguments, console = parser.parse_args(), Console(width=220)  # of the table with its intervals
    result = collect(arguments.runs, arguments.seeds)
    out = arguments.out or new_result("arms", arguments.device)
    write_result(out, result, vars(arguments))
    for kind in kinds(result):
        table = Table("arm", "seeds", *FIGURE_HEADINGS, title=kind.replace("_", "-"))
        for cells in table_rows(result, kind):
            table.add_row(*cells)
        console.print(table)
    console.print(f"written: {out}")
    if arguments.markdown:
        write_atomically(arguments.markdown, markdown(result) + "\n")
        console.print(f"written: {arguments.markdown}")


if __name__ == "__main__":
    run_command(main)
