"""The paper's table from the run folders of `benchmarks.paper.run`: figures, curves, techniques, bars.

python -m benchmarks.paper.collect --runs runs/table --device h100 [--out FILE] [--markdown FILE] [--docs PAGE]
"""

from __future__ import annotations

import argparse
import subprocess
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.common.marked_section import write_section
from benchmarks.common.results import new_result, write_result
from benchmarks.paper.arms import ARMS, run_name
from benchmarks.paper.figures import SHARES, Samples, columns, compare, samples_of
from benchmarks.paper.records import DONE, read_arms, rule_settings
from cudal1_ray.analysis import describe_environment
from cudal1_ray.analysis.tables import markdown_lines
from cudal1_ray.analysis.techniques import find_techniques
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import exemplar_id
from cudal1_ray.files import read_json_lines, write_atomically
from cudal1_ray.training.policy_assessment import FILE

HEADINGS = {
    "success": "success",
    "own_kernel": "own kernel",
    "fast_1": "> 1x",
    "fast_1_2": "> 1.2x",
    "above_1_01": "> 1.01x",
    "mean": "mean",
    "geomean": "geom. mean",
    "median": "median",
    "p75": "p75",
    "p25": "p25",
    "max": "max",
}
# (first, second) of the comparisons that the claims rest on.
PAIRS = (
    ("base", "stage1"),
    ("stage1", "stage2"),
    ("stage1", "bucket"),
    ("stage1", "grpo"),
    ("stage2", "bucket"),
    ("stage2-long", "bucket"),
    ("grpo", "bucket"),
    ("evolution", "bucket"),
)
ROLLOUT_COLUMNS = [
    "step",
    "problem_id",
    "status",
    "speedup",
    "speedup_low",
    "own_kernel",
    "copied",
    "code",
    "policy_version",
]


def finished(runs: Path) -> dict[str, dict[str, Path]]:
    """Returns the folders of the arms that are done: arm -> seed -> run."""
    runs_by_arm: dict[str, dict[str, Path]] = {}
    for arm in ARMS:
        for file in sorted(runs.glob(f"seed-*/{DONE}")):
            record = read_arms(file.parent).get(arm, {})
            if "at" in record and file.parent.name == run_name(arm, record["seed"]):
                runs_by_arm.setdefault(arm, {})[str(record["seed"])] = file.parent
    return runs_by_arm


def collect(runs: Path) -> dict[str, Any]:
    """Returns what the results file holds.

    Raises:
        UserError: no arm is done.
    """
    arms = finished(runs)
    if not arms:
        raise UserError(f"{runs}: no arm is done there; run benchmarks.paper.run first")
    sets = {(arm, *key): samples for arm, of in arms.items() for key, samples in _samples(arm, of).items()}
    return {
        "arms": {arm: _arm(arm, of, sets) for arm, of in arms.items()},
        "comparisons": _comparisons(sets),
        "bars": _bars(sets),
        "commands": list(read_json_lines(runs / "attempts.jsonl")),
        "environment": describe_environment(),
        "commit": _commit(),
    }


def _samples(arm: str, runs: dict[str, Path]) -> dict[tuple[str, bool], Samples]:
    """Samples of an arm by (split, with exemplars)."""
    grouped: dict[tuple[str, bool], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for seed, run in runs.items():
        policy = read_arms(run)[arm]["policy"]
        for row in read_json_lines(run / FILE):
            if row["policy"] == policy:
                grouped[row["split"], row["exemplars"]][seed].append(row)
    packed = {key: samples_of(rows) for key, rows in grouped.items()}
    return {key: samples for key, samples in packed.items() if samples is not None}


def _arm(arm: str, runs: dict[str, Path], sets: dict[tuple[str, str, bool], Samples]) -> dict[str, Any]:
    rollouts = {seed: _rollouts(run, ARMS[arm].stage) for seed, run in runs.items()}
    return {
        "label": ARMS[arm].label,
        "assessed": {
            f"{split}{' with exemplars' if with_exemplars else ''}": columns(samples)
            for (name, split, with_exemplars), samples in sets.items()
            if name == arm
        },
        "seeds": {
            seed: {
                **{key: value for key, value in read_arms(run)[arm].items() if key not in ("seed", "at")},
                "samples": len(rollouts[seed]),
                "evaluations": sum(row.get("evaluations", 0.0) for row in _metrics(run, ARMS[arm].stage)),
                "curve": _curve(rollouts[seed]),
                "settings": yaml.safe_load((run / "config.yaml").read_text()),
                "environments": list(read_json_lines(run / "environment.jsonl")),
            }
            for seed, run in runs.items()
        },
        "techniques": _techniques(
            [row for rows in rollouts.values() for row in rows],
            {
                row["problem_id"]: row["source"]
                for run in runs.values()
                for row in read_json_lines(run / "problems.jsonl")
            },
        ),
    }


def _metrics(run: Path, stage: str) -> list[dict[str, Any]]:
    return [row for row in read_json_lines(run / "metrics.jsonl") if row["stage"] == stage]


def _rollouts(run: Path, stage: str) -> list[dict[str, Any]]:
    files = sorted((run / "rollouts").glob(f"{stage}-*.parquet")) if stage else []
    return [row for file in files for row in pq.read_table(file, columns=ROLLOUT_COLUMNS).to_pylist()]


def _curve(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """One point a step: samples so far, and of the step's samples the shares and the median speedup of right ones."""
    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        steps[row["step"]].append(row)
    points, so_far = [], 0
    for step, of_step in sorted(steps.items()):
        so_far += len(of_step)
        right = [row for row in of_step if row["status"] == "accepted"]
        points.append(
            {
                "step": step,
                "samples": so_far,
                "success": len(right) / len(of_step),
                "own_kernel": sum(row["own_kernel"] for row in right) / len(of_step),
                "copied": sum(row["copied"] for row in right) / max(1, len(right)),
                "median_speedup": median([row["speedup"] for row in right]) if right else 0.0,
            }
        )
    return points


def _techniques(rows: list[dict[str, Any]], references: dict[str, str]) -> dict[str, dict[str, float]]:
    """Returns how many distinct accepted candidates use each technique, and their median speedup.

    Copies are left out, and what the reference has as well is no technique of a candidate.
    """
    distinct = {
        exemplar_id(row["problem_id"], row["code"]): row
        for row in rows
        if row["status"] == "accepted" and not row["copied"]
    }
    gains: dict[str, list[float]] = defaultdict(list)
    for row in distinct.values():
        for name in {t.name for t in find_techniques(row["code"], references.get(row["problem_id"], ""))}:
            gains[name].append(row["speedup"])
    return {
        name: {"candidates": len(speedups), "median_speedup": median(speedups)}
        for name, speedups in sorted(gains.items(), key=lambda item: -len(item[1]))
    }


def _comparisons(sets: dict[tuple[str, str, bool], Samples]) -> list[dict[str, Any]]:
    comparisons = []
    for first, second in PAIRS:
        for split in ("train", "held_out"):
            sides = [sets.get((arm, split, False)) for arm in (first, second)]
            if None not in sides and (result := compare(*sides)) is not None:
                comparisons.append({"first": first, "second": second, "split": split, **result})
    return comparisons


def _bars(sets: dict[tuple[str, str, bool], Samples]) -> dict[str, Any]:
    """What the table is to show, each with the figures that decide it; absent where an arm is not done."""
    bars: dict[str, Any] = {}
    if (base := sets.get(("base", "held_out", False))) and (bucket := sets.get(("bucket", "held_out", False))):
        before, after = columns(base)["success"], columns(bucket)["success"]
        bars["held-out success at least twice the base model's"] = {"base": before, "bucket": after}
    for first in ("stage1", "stage2", "stage2-long", "grpo"):
        other, bucket = sets.get((first, "train", False)), sets.get(("bucket", "train", False))
        if other and bucket and (result := compare(other, bucket)) is not None:
            bars[f"bucket beats {first} in geometric mean on training problems"] = result
    return bars


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip()


def table_rows(result: dict[str, Any], assessed: str) -> list[list[str]]:
    """Cells of the table, all text: one line for each arm that was assessed so."""
    rows = []
    for arm in result["arms"].values():
        if (figures := arm["assessed"].get(assessed)) is not None:
            cells = [arm["label"], str(figures["seeds"])]
            rows.append([*cells, *(_cell(name, figures) for name in HEADINGS)])
    return rows


def budget_rows(result: dict[str, Any]) -> list[list[str]]:
    """Returns what each arm was given for each seed, all text; minutes are of the whole machine, starts included."""
    rows = []
    for arm in result["arms"].values():
        for seed, of in arm["seeds"].items():
            minutes = [
                f"{of[key]:.1f}" if of[key] is not None else "" for key in ("training_minutes", "assessment_minutes")
            ]
            rows.append([arm["label"], seed, of["policy"], str(of["samples"]), f"{of['evaluations']:.0f}", *minutes])
    return rows


def _conditions(result: dict[str, Any]) -> list[str]:
    """Returns a line for each set of sizes, reward and rules that runs of the table were trained with."""
    lines = {}
    for arm in result["arms"].values():
        for of in arm["seeds"].values():
            settings = of["settings"]
            rules = ", ".join(rule_settings(settings["evaluation"].get("rules", {}))) or "all defaults"
            line = f"Sizes: {settings['problems']['sizes']}. Reward: {settings['rewards']['kind']}. Rules: {rules}."
            lines[line] = None
    return list(lines)


def _differences(result: dict[str, Any]) -> list[str]:
    """Returns a line for each run that was trained before the table and computed something otherwise than its runs."""
    return [
        f"\n{arm['label']}, seed {seed}, has other settings than the table: {', '.join(of['differences'])}."
        for arm in result["arms"].values()
        for seed, of in arm["seeds"].items()
        if of.get("differences")
    ]


def _cell(name: str, figures: dict[str, Any]) -> str:
    format_figure = (lambda value: f"{value:.0%}") if name in SHARES else (lambda value: f"{value:.2f}")
    bounds = figures["intervals"].get(name)
    return format_figure(figures[name]) + (
        f" ({format_figure(bounds[0])} to {format_figure(bounds[1])})" if bounds else ""
    )


def kinds(result: dict[str, Any]) -> list[str]:
    """What was assessed, in order: train, train with exemplars, held_out."""
    return sorted({kind for arm in result["arms"].values() for kind in arm["assessed"]}, reverse=True)


def markdown(result: dict[str, Any]) -> str:
    """The section of docs/results.md."""
    lines = [
        f"Commit `{result['commit'][:12]}`. 95% bootstrap intervals over problems and seeds.",
        *_conditions(result),
    ]
    for kind in kinds(result):
        lines += ["", f"**{kind.replace('_', '-')}**", ""]
        lines += markdown_lines(["arm", "seeds", *HEADINGS.values()], table_rows(result, kind))
    rows = []
    for comparison in result["comparisons"]:
        low, high = comparison["interval"]
        names = [ARMS[comparison[side]].label for side in ("first", "second")]
        split = comparison["split"].replace("_", "-")
        rows.append([*names, split, f"{comparison['ratio']:.2f} ({low:.2f} to {high:.2f})"])
    lines += ["", *markdown_lines(["first", "second", "problems", "ratio of geometric means"], rows)]
    heads = ["arm", "seed", "policy", "samples", "evaluations", "training, min", "assessment, min"]
    lines += ["", *markdown_lines(heads, budget_rows(result)), *_differences(result)]
    rows = [
        [arm["label"], name, str(figures["candidates"]), f"{figures['median_speedup']:.2f}x"]
        for arm in result["arms"].values()
        for name, figures in list(arm["techniques"].items())[:6]
    ]
    return "\n".join([*lines, "", *markdown_lines(["arm", "technique", "candidates", "median speedup"], rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/table"))
    parser.add_argument("--device", default="cpu", help="in the file's name, for example h100")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/arms/<date>-<device>-<commit>.json")
    parser.add_argument("--markdown", type=Path, help="the tables as a file of their own")
    parser.add_argument("--docs", type=Path, help="a page with the markers of the section `arms`, for docs/results.md")
    arguments, console = parser.parse_args(), Console(width=220)  # of the table with its intervals
    result = collect(arguments.runs)
    out = arguments.out or new_result("arms", arguments.device)
    write_result(out, result)
    for kind in kinds(result):
        table = Table("arm", "seeds", *HEADINGS.values(), title=kind.replace("_", "-"))
        for cells in table_rows(result, kind):
            table.add_row(*cells)
        console.print(table)
    console.print(f"written: {out}")
    if arguments.markdown:
        write_atomically(arguments.markdown, markdown(result) + "\n")
        console.print(f"written: {arguments.markdown}")
    if arguments.docs:
        write_section(arguments.docs, "arms", markdown(result))
        console.print(f"written: {arguments.docs}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"paper.collect: {error}") from None
