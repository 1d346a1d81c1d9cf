#!/usr/bin/env python3
"""The ablation of the paper on the demo configuration: what do exemplars, and how they are chosen, add?

For every seed one base run takes the policy through supervised fine-tuning and self-supervised training; every arm is
a run of stage 3 from there, so that arms of a seed differ in nothing but what the arm is about. The main four come
first, seed by seed; the further arms after them, for fewer seeds. Every run is an ordinary `cudal1 train`: finished
ones are skipped, broken ones continued, and one that fails does not stop the others. So the command may be
interrupted, and given again.

    python -m benchmarks.training.ablations [key=value ...] --seeds 1 2 3 [--minutes 110] [--base-runs FOLDER]
    python -m benchmarks.training.ablations --write-docs      the measured table into docs/ablations.md; runs nothing
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import parse_with_settings, run_command
from benchmarks.common.marked_section import write_section
from benchmarks.common.results import latest_result, new_result, read_result, write_result
from benchmarks.training.ablation_runs import BASE_STAGES, STAGE, Runner, adopt_base, is_assessed, is_finished
from cudal1_ray.analysis import combine_seeds, describe_environment, summarise
from cudal1_ray.analysis.run_data import SPLITS, RunData
from cudal1_ray.analysis.sweep import Setting, SettingsComparison, adjust_by_holm, compare_settings
from cudal1_ray.analysis.tables import format_interval, format_share, format_speedup, markdown_lines
from cudal1_ray.errors import UserError
from cudal1_ray.files import read_json_lines

COLUMNS = ("success_rate", "mean", "geomean", "median", "above_1_01")
AGAINST = "bucket"
NO_ANALYSIS = ("prompting.include_analysis=false",)


@dataclass(frozen=True)
class Arm:
    """One line of the table. own_base: settings that the first two stages need as well: such an arm has a base run of
    its own for each seed, from the same initial weights.
    """

    label: str
    overrides: tuple[str, ...]
    own_base: tuple[str, ...] = ()


MAIN = {
    "bucket": Arm("bucket", ("exemplars=bucket",)),
    "none": Arm("no contrast (plain GRPO)", ("exemplars=none",)),
    "island": Arm("island", ("exemplars=island",)),
    "uniform": Arm("random exemplars", ("exemplars=uniform",)),
}
FURTHER = {
    # A policy writes the analysis because stages 1 and 2 taught it to, so these are done without it too.
    "no-analysis": Arm("bucket, no performance analysis", NO_ANALYSIS, own_base=NO_ANALYSIS),
    "n-1": Arm("bucket, N = 1", ("exemplars=bucket", "exemplars.count=1")),
    "n-4": Arm("bucket, N = 4", ("exemplars=bucket", "exemplars.count=4")),
    "tau-0.25": Arm("bucket, tau = 0.25", ("exemplars=bucket", "exemplars.tau=0.25")),
    "tau-4": Arm("bucket, tau = 4", ("exemplars=bucket", "exemplars.tau=4.0")),
}
ARMS = MAIN | FURTHER


def base_name(seed: int, arm: str) -> str:
    return f"seed-{seed}-base" + (f"-{arm}" if ARMS[arm].own_base else "")


def run_name(seed: int, arm: str) -> str:
    return f"seed-{seed}-{arm}"


def run_arm(runner: Runner, seed: int, arm: str, base_runs: Path | None) -> bool:
    """Take an arm through its base run, where that is not there yet, and stage 3; return whether it is finished."""
    spec, base = ARMS[arm], base_name(seed, arm)
    if is_finished(runner.folder / run_name(seed, arm), STAGE):
        return True
    if base_runs is not None and not spec.own_base:
        try:
            adopt_base(base_runs / f"seed-{seed}", runner.folder / base, seed, runner.overrides)
        except UserError as error:
            runner.fail(base, str(error))
            return False
    if not all(runner.run(base, stage, seed, *spec.own_base) for stage in BASE_STAGES):
        return False
    return runner.run(run_name(seed, arm), STAGE, seed, f"init_from={runner.folder / base}", *spec.overrides)


def run_all(runner: Runner, todo: list[tuple[int, str]], base_runs: Path | None, out: Path) -> None:
    """Run all in order, then those that failed once more; the results are written after every one."""
    for _ in range(2):
        failed = []
        for seed, arm in todo:
            if runner.late:
                return
            if not run_arm(runner, seed, arm, base_runs):
                failed.append((seed, arm))
            write_results(runner, out)
        todo = failed


def write_results(runner: Runner, out: Path) -> dict[str, Any]:
    """Write the results of the finished runs in the folder, with those of others in the file; empty without any."""
    if result := collect(runner):
        result = merge(read_ablation(out), result) if out.is_file() else result
        configuration = {key: result[key] for key in ("against", "overrides")}
        metrics = {key: result[key] for key in result.keys() - configuration.keys() - {"environment"}}
        write_result(out, metrics, configuration, environment=result["environment"])
    return result


def read_ablation(file: Path) -> dict[str, Any]:
    """Return a result as `collect` makes it: settings, environment and figures side by side."""
    content = read_result(file)
    return content["metrics"] | content["configuration"] | {"environment": content["environment"]}


def merge(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Keep arms that have more seeds in an earlier file: their runs may be in another folder, or gone.

    An arm's comparison comes from where its figures come from: with the bucket runs that lay beside it.
    """
    ours = {name for name, arm in later["arms"].items() if len(arm["seeds"]) >= _seeds(earlier, name)}
    arms = {name: (later if name in ours else earlier)["arms"][name] for name in later["arms"] | earlier["arms"]}
    comparisons = [comparison for comparison in earlier["comparisons"] if comparison["second"] not in ours]
    comparisons += [comparison for comparison in later["comparisons"] if comparison["second"] in ours]
    order = list(ARMS)
    base = later if AGAINST in ours else earlier
    return {
        **base,
        "arms": {name: arms[name] for name in ARMS if name in arms},
        "comparisons": sorted(
            comparisons, key=lambda comparison: (SPLITS.index(comparison["split"]), order.index(comparison["second"]))
        ),
        "failed": later["failed"],
    }


def _seeds(result: dict[str, Any], arm: str) -> int:
    return len(result["arms"].get(arm, {}).get("seeds", ()))


def read_assessments(run: Path) -> RunData:
    return RunData(folder=run, assessments=read_json_lines(run / "assessments.jsonl"))


def read_summary(run: Path) -> dict[str, Any]:
    """Return the summary that the run wrote when it ended; made anew for an adopted base, which has none."""
    path = run / "report" / "summary.json"
    return json.loads(path.read_text()) if path.is_file() else summarise(read_assessments(run))


def assessed_seeds(folder: Path) -> dict[str, list[int]]:
    """Return the arms that have any assessed run, in order, with their seeds."""
    seeds_by_arm: dict[str, list[int]] = {}
    for arm in ARMS:
        names = [path.name for path in folder.glob(f"seed-*-{arm}") if is_assessed(path, STAGE)]
        seeds = [name.removeprefix("seed-").removesuffix(f"-{arm}") for name in names]
        if numbers := sorted(int(seed) for seed in seeds if seed.isdigit()):
            seeds_by_arm[arm] = numbers
    return seeds_by_arm


def collect(runner: Runner) -> dict[str, Any]:
    """Return what the results file holds, of all assessed runs in the folder; empty when there is none."""
    seeds = assessed_seeds(runner.folder)
    if not seeds:
        return {}
    arms = {}
    for arm, of_arm in seeds.items():
        runs = {seed: runner.folder / run_name(seed, arm) for seed in of_arm}
        summaries = {seed: read_summary(run) for seed, run in runs.items()}
        arms[arm] = {
            "label": ARMS[arm].label,
            "settings": list(ARMS[arm].overrides),
            "over_seeds": _over_seeds(list(summaries.values())),
            "seeds": {
                seed: {
                    **{split: _columns(entry) for split, entry in summaries[seed]["stages"][STAGE].items()},
                    "wall_minutes": runner.minutes(run.name),
                    "exemplars_shown": _exemplars_shown(run),
                }
                for seed, run in runs.items()
            },
        }
    return {
        "arms": arms,
        "start": _start(runner, seeds),
        "against": AGAINST,
        "comparisons": [
            comparison.to_dict() for split in SPLITS for comparison in compare_arms(runner.folder, seeds, split)
        ],
        "failed": dict(runner.failed),
        "overrides": runner.overrides,
        "load_average": os.getloadavg()[0],
        "environment": describe_environment(),
    }


def compare_arms(folder: Path, seeds: dict[str, list[int]], split: str) -> list[SettingsComparison]:
    """Compare each arm with bucket over the seeds that both have, in pairs of runs; p values after Holm (1979)."""
    comparisons = []
    for arm in seeds if AGAINST in seeds else ():
        shared = [seed for seed in seeds[arm] if seed in seeds[AGAINST]]
        if arm != AGAINST and shared:
            sides = [
                Setting(name, {str(seed): read_assessments(folder / run_name(seed, name)) for seed in shared})
                for name in (AGAINST, arm)
            ]
            comparisons += compare_settings(sides, STAGE, split)
    return adjust_by_holm(comparisons)


def _start(runner: Runner, seeds: dict[str, list[int]]) -> dict[str, Any]:
    """Return what each stage of the shared base runs reached, and the minutes they took."""
    used = sorted({seed for arm, of_arm in seeds.items() if not ARMS[arm].own_base for seed in of_arm})
    runs = {seed: runner.folder / base_name(seed, AGAINST) for seed in used}
    runs = {seed: run for seed, run in runs.items() if is_finished(run, BASE_STAGES[-1])}
    summaries = [read_summary(run) for run in runs.values()]
    return {
        "wall_minutes": {seed: runner.minutes(run.name) for seed, run in runs.items()},
        "stages": {stage: _over_seeds(summaries, stage) for stage in BASE_STAGES if summaries},
    }


def _over_seeds(summaries: list[dict[str, Any]], stage: str = STAGE) -> dict[str, Any]:
    return {
        split: {**_columns(entry), "intervals": entry["intervals"], "samples": entry["samples"]}
        for split, entry in combine_seeds(summaries)["stages"][stage].items()
    }


def _columns(entry: dict[str, Any]) -> dict[str, float]:
    return {column: entry[column] for column in COLUMNS}


def _exemplars_shown(run: Path) -> float:
    """Return the mean number of exemplars that a prompt of stage 3 showed: not all fit, and at first there are few."""
    rows = read_json_lines(run / "selections.jsonl")
    return round(sum(len(row["exemplar_ids"]) for row in rows) / len(rows), 3)


def table_rows(result: dict[str, Any], split: str) -> list[list[str]]:
    """Return the cells of the table, all text: one line for each arm."""
    against = {comparison["second"]: comparison for comparison in result["comparisons"] if comparison["split"] == split}
    rows = []
    for name, arm in result["arms"].items():
        if split not in arm["over_seeds"]:
            continue
        entry, seeds = arm["over_seeds"][split], list(arm["seeds"].values())
        cells = [arm["label"], str(len(seeds)), f"{sum(run['exemplars_shown'] for run in seeds) / len(seeds):.2f}"]
        cells += [format_share(entry["success_rate"]), format_speedup(entry["mean"]), _with_interval(entry)]
        cells += [format_share(entry["above_1_01"]), _against(against.get(name)), _p_value(against.get(name))]
        timed = [run["wall_minutes"] for run in seeds if run["wall_minutes"] is not None]
        rows.append([*cells, f"{sum(timed) / len(timed):.1f}" if timed else ""])
    return rows


HEADINGS = ("arm", "seeds", "shown", "success", "mean", "geometric mean", "> 1.01x", "against bucket", "p, Holm", "min")


def _with_interval(entry: dict[str, Any]) -> str:
    bounds = format_interval(entry["intervals"].get("geomean"))
    return format_speedup(entry["geomean"]) + (f" ({bounds})" if bounds else "")


def _against(comparison: dict[str, Any] | None) -> str:
    if comparison is None:
        return ""
    bounds = format_interval([comparison["low"], comparison["high"]] if comparison["low"] is not None else None)
    return f"times {comparison['ratio']:.2f}" + (f" ({bounds})" if bounds else "")


def _p_value(comparison: dict[str, Any] | None) -> str:
    value = comparison["p_adjusted"] if comparison else None
    return "" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def print_table(result: dict[str, Any], console: Console) -> None:
    for split in SPLITS[::-1]:
        table = Table(*HEADINGS, title=f"{split.replace('_', '-')} problems, after stage 3")
        for cells in table_rows(result, split):
            table.add_row(*cells)
        if table.row_count:
            console.print(table)
    for run, reason in result["failed"].items():
        console.print(f"not in the table: {run} ({reason})", highlight=False, markup=False)


def markdown(result: dict[str, Any]) -> str:
    """Return the section of docs/ablations.md."""
    environment, over_seeds = result["environment"], [arm["over_seeds"] for arm in result["arms"].values()]
    machine = f"{environment['processor']}, {environment['processor_cores']} cores"
    held_out = [splits["held_out"]["success_rate"] for splits in over_seeds if "held_out" in splits]
    counts = [len(arm["seeds"]) for arm in result["arms"].values()]
    lines = [
        "## Measured",
        "",
        f"{sum(counts)} runs of stage 3 on {machine}. Training problems, means over seeds, 95% Student t intervals",
        "over seeds in brackets; a failure counts as 0 in the mean and as 0.1 in the geometric mean. *shown*:",
        "exemplars in a prompt of stage 3, on average. *against bucket*: ratio of geometric means over the common",
        "seeds, of runs from the same start, with a paired t test. *min*: wall minutes of a run of stage 3, start and",
        "assessment included.",
        "",
        *markdown_lines(HEADINGS, table_rows(result, "train")),
    ]
    for stage, splits in result["start"]["stages"].items():
        entry = splits["train"]
        name = {"sft": "supervised fine-tuning", "self_supervised": "self-supervised"}[stage]
        lines.append(
            f"| *start: {name}* | {len(result['start']['wall_minutes'])} | | {format_share(entry['success_rate'])} | "
            f"{format_speedup(entry['mean'])} | {_with_interval(entry)} | {format_share(entry['above_1_01'])} | | | |"
        )
    if held_out:
        most = f"at most {format_share(max(held_out))} of an arm's samples are" if max(held_out) else "no sample is"
        lines += ["", f"On held-out problems {most} accepted."]
    lines += [f"Not in the table: `{run}` ({reason})." for run, reason in result["failed"].items()]
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the main arms")
    parser.add_argument("--further-seeds", type=int, nargs="+", help="of the further arms (default: the first seed)")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), help=", ".join(ARMS))
    parser.add_argument("--runs", type=Path, default=Path("runs/ablations"), help="folder of the runs")
    parser.add_argument("--base-runs", type=Path, help="folder with runs seed-N whose first two stages are taken over")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="minutes after which no run is started")
    parser.add_argument("--out", type=Path, help="default: a new file; with --write-docs the newest")
    parser.add_argument("--docs", type=Path, default=Path("docs/ablations.md"))
    parser.add_argument("--write-docs", action="store_true", help="only write the results into the page; runs nothing")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings of all runs")
    return parse_with_settings(parser)


def main() -> None:
    arguments, console = parse(), Console()
    arguments.out = arguments.out or (latest_result if arguments.write_docs else new_result)("ablations")
    if arguments.write_docs:
        write_section(arguments.docs, "measured ablation", markdown(read_ablation(arguments.out)))
        console.print(f"written: {arguments.docs}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves by the same way as an interrupt: runs are stopped
    further = arguments.further_seeds or arguments.seeds[:1]
    todo = [(seed, arm) for seed in arguments.seeds for arm in MAIN if arm in arguments.arms]
    todo += [(seed, arm) for seed in further for arm in FURTHER if arm in arguments.arms]
    runner = Runner(arguments.runs, time.monotonic() + 60 * arguments.minutes, arguments.overrides, console)
    try:
        run_all(runner, todo, arguments.base_runs, arguments.out)
    except KeyboardInterrupt:
        console.print("interrupted; the same command continues")
        raise SystemExit(130) from None
    left = [f"seed {seed} {arm}" for seed, arm in todo if not is_finished(runner.folder / run_name(seed, arm), STAGE)]
    if result := write_results(runner, arguments.out):
        print_table(result, console)
        console.print(f"written: {arguments.out}")
    if left:
        console.print(f"not finished: {', '.join(left)}; the same command continues", highlight=False)
        raise SystemExit(1)


if __name__ == "__main__":
    run_command(main)
