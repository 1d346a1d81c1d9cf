#!/usr/bin/env python3
"""Does it learn? Whole runs over several seeds, contrastive RL beside plain GRPO of the same budget.

For every seed: the demo, then plain GRPO (`exemplars=none`) from the same self-supervised policy, with the same number
of steps, prompts and samples; `--no-plain` leaves that out. Runs that are there already are continued or read, so the
command may be interrupted.

    python -m benchmarks.training.learning --seeds 1 2 3 --runs runs [--no-plain] [--out FILE.json] [key=value ...]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.common.command_line import parse_with_settings, run_command
from benchmarks.common.results import new_result, write_result
from cudal1_ray.analysis import combine_seeds, compare_runs, markdown_table
from cudal1_ray.analysis.statistics import geometric_ratio
from cudal1_ray.files import read_json_lines


def train(*overrides: str) -> None:
    """Train one run in a process of its own: a second Ray and a second vLLM do not share one."""
    subprocess.run([sys.executable, "-m", "cudal1_ray.cli", "train", *overrides], check=True, stdout=subprocess.DEVNULL)


def summary_of(run: Path) -> dict:
    return json.loads((run / "report" / "summary.json").read_text())


def wall_s(run: Path) -> float:
    """Return the seconds from the run's start to the end of its last step, without the assessment after it."""
    return read_json_lines(run / "metrics.jsonl")[-1]["wall_s"]


def against_plain_grpo(contrastive: list[Path], plain: list[Path], split: str) -> dict:
    """Return the ratio of geometric means, contrastive over plain GRPO: per seed, and with a t interval over seeds."""
    ratios = []
    for runs in zip(plain, contrastive, strict=True):
        first, second = (read_json_lines(run / "assessments.jsonl") for run in runs)
        comparison = compare_runs(first, second, "contrastive", split)
        ratios.append(math.exp(comparison.to_dict()["log_geomean_difference"]))
    ratio, interval = geometric_ratio(ratios)
    return {"split": split, "ratio": ratio, "interval": interval, "per_seed": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--plain", action=argparse.BooleanOptionalAction, default=True, help="plain GRPO as well")
    parser.add_argument("--out", type=Path, default=new_result("learning"))
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parse_with_settings(parser)
    console = Console()

    contrastive, plain = [], []
    for seed in arguments.seeds:
        contrastive.append(arguments.runs / f"seed-{seed}")
        plain.append(arguments.runs / f"seed-{seed}-plain-grpo")
        common = [f"runs_dir={arguments.runs}", f"seed={seed}", *arguments.overrides]
        console.print(f"seed {seed}: contrastive")
        train(f"name={contrastive[-1].name}", *common)
        if arguments.plain:
            console.print(f"seed {seed}: plain GRPO")
            start = f"init_from={contrastive[-1]}"
            train(f"name={plain[-1].name}", start, "stage=contrastive", "exemplars=none", *common)

    table = combine_seeds([summary_of(run) for run in contrastive])
    result = {
        "stages": table["stages"],
        "comparisons": table["comparisons"],
        "wall_s": {run.name: wall_s(run) for run in contrastive},
    }
    comparisons = []
    if arguments.plain:
        comparisons = [against_plain_grpo(contrastive, plain, split) for split in ("train", "held_out")]
        of_plain = combine_seeds([summary_of(run) for run in plain])
        result["stages"] = {**table["stages"], "plain_grpo": of_plain["stages"]["contrastive"]}
        result["contrastive_over_plain_grpo"] = comparisons
    write_result(arguments.out, result, vars(arguments))
    console.print(markdown_table({**table, "stages": result["stages"]}), highlight=False, soft_wrap=True)
    for comparison in comparisons:
        low, high = comparison["interval"] or (math.nan, math.nan)
        console.print(
            f"contrastive over plain GRPO, {comparison['split']}: geometric mean times {comparison['ratio']:.2f} "
            f"({low:.2f} to {high:.2f}); per seed {', '.join(f'{ratio:.2f}' for ratio in comparison['per_seed'])}",
            highlight=False,
            soft_wrap=True,
        )
    console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    run_command(main)
