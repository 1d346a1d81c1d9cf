#!/usr/bin/env python3
"""The kernels that CUDA-L1's authors published, measured again, beside the authors' own figures.

All pairs of each file are evaluated under each set of rules and against each baseline asked for; verdicts are written
as they come, and the same command goes on where a killed one stopped. Then the paper's table of each file, and why the
rest was rejected; with `--before`, what became of the candidates that an earlier result refused.

    python -m benchmarks.evaluator.published_kernels cuda_l1_published_a100.parquet cuda_l1_published_h100.parquet \
        --device cuda --rules default kernelbench strict [--before RESULT.json]
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import run_command
from benchmarks.common.results import read_result, write_result
from benchmarks.evaluator.common import evaluation_config, published_pairs, rows_of
from cudal1_ray.analysis.statistics import describe
from cudal1_ray.analysis.tables import format_speedup
from cudal1_ray.commands.evaluate_manifest import progress
from cudal1_ray.commands.manifest import Pair, VerdictFile
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.evaluation.baselines import BASELINES
from cudal1_ray.evaluation.pool import EvaluatorPool
from cudal1_ray.wording import counted

# The column of the authors' files that holds their figure against each baseline.
AUTHORS_COLUMNS = {
    "eager": "score_default",
    "compile": "score_torch_compile_default",
    "compile_reduce_overhead": "score_torch_compile_reduce_overhead",
    "cuda_graph": "score_cuda_graph",
    "tuned_eager": "score_cudnn",
}
COLUMNS = ("mean", "geomean", "max", "p75", "median", "p25")


def evaluate_rows(
    file: Path, rows: slice, config: EvaluationConfig, verdicts: Path, console: Console
) -> list[dict[str, Any]]:
    """Return a row for every published candidate; those that `verdicts` holds already are not evaluated again."""
    pairs = {name: Pair(name, name, problem, code) for name, problem, code in published_pairs(file, rows)}
    with VerdictFile(verdicts, list(pairs.values()), config) as kept:
        left = [(name, pair.problem, pair.code) for name, pair in pairs.items() if name not in kept.rows]
        with progress(console, len(pairs), kept.rows.values()) as show:
            if left:
                with EvaluatorPool(config) as pool:
                    for name, verdict in pool.evaluate_all(left):
                        show(kept.add(pairs[name], verdict))
        return list(kept.rows.values())


def authors(file: Path, rows: slice, against: str) -> dict[str, float]:
    """Return the authors' own speedups, of the problems for which they give one, with code or without."""
    scores = {f"level{row['level_id']}_{row['task_id']}": row for row in pq.read_table(file).to_pylist()[rows]}
    speedups = {name: row[AUTHORS_COLUMNS[against]] for name, row in scores.items()}
    return {
        name: float(speedup)
        for name, speedup in speedups.items()
        if speedup is not None and math.isfinite(float(speedup))
    }


def columns(speedups: list[float], faster: float = 1.01) -> dict[str, float]:
    """Return the paper's columns over successes alone, as the authors have it; empty where there is none."""
    if not speedups:
        return {}
    values = np.array(speedups)
    summary = describe(values, np.ones_like(values), floor=1e-9, faster=faster)
    return {**{name: summary[name] for name in COLUMNS}, "above_1_01": int((values > faster).sum())}


def of_levels(speedups: dict[str, float]) -> dict[str, dict[str, float]]:
    """Return the same for each level of KernelBench, with how many there are."""
    levels = sorted({name.partition("_")[0] for name in speedups})
    each = {level: [speedup for name, speedup in speedups.items() if name.startswith(f"{level}_")] for level in levels}
    return {level: {"success": len(values), **columns(values)} for level, values in each.items()}


def held_together(measured: dict[str, float], published: dict[str, float]) -> dict[str, Any]:
    """Return our figures and the authors': of all that each has, of each level, and theirs of what both have."""
    same = {name: published[name] for name in measured if name in published}
    return {
        "measured": columns(list(measured.values())),
        "measured_levels": of_levels(measured),
        "authors": {"success": len(published), **columns(list(published.values()))},
        "authors_levels": of_levels(published),
        "authors_of_these": {"success": len(same), **columns(list(same.values()))},
    }


def summarise(rows: list[dict[str, Any]], published: dict[str, float]) -> dict[str, Any]:
    degenerate = [row for row in rows if row["degenerate"]]
    accepted = [row for row in rows if row["verdict"] == "accepted" and not row["degenerate"]]
    rejected = [row for row in rows if row["verdict"] == "rejected" and not row["degenerate"]]
    return {
        "published": len(rows),
        "degenerate": sorted(row["id"] for row in degenerate),
        "success": len(accepted),
        "with_own_kernel": sum(row["own_kernel"] for row in accepted),
        "flags": dict(Counter(flag.partition(":")[0] for row in accepted for flag in row["flags"]).most_common()),
        **held_together({row["id"]: row["credited_speedup"] for row in accepted}, published),
        "reasons": dict(Counter(reason for row in rejected for reason in row["reasons"]).most_common()),
        "rejected": {row["id"]: f"{', '.join(row['reasons'])}: {row['detail']}"[:300] for row in rejected},
        "verdicts": {
            row["id"]: [row["speedup"], row["speedup_low"], row["speedup_high"], row["runtime_ms"], row["reference_ms"]]
            for row in accepted
        },
    }


def fates(before: dict[str, Any], now: dict[str, dict[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Return by former reason what became of the candidates that an earlier result refused, against eager PyTorch.

    Args:
        before: metrics of the earlier result.
        now: rows by rules and file.
    """
    former = {
        (file, name): reason.partition(":")[0]
        for file, summaries in (before["rules"]["default"] if "rules" in before else before)["files"].items()
        for name, reason in summaries["eager"]["rejected"].items()
    }
    became = {
        rules: {(file, row["id"]): row["verdict"] if row["verdict"] == "accepted" else row["reasons"][0]
                for file, rows in files.items() for row in rows}
        for rules, files in now.items()
    }  # fmt: skip
    return {
        reason: {
            "refused": sum(other == reason for other in former.values()),
            **{
                rules: dict(
                    Counter(of[key] for key, other in former.items() if other == reason and key in of).most_common()
                )
                for rules, of in became.items()
            },
        }
        for reason, _ in Counter(former.values()).most_common()
    }


def print_summary(name: str, against: str, summary: dict[str, Any], console: Console) -> None:
    left_out = (
        f", {counted(len(summary['degenerate']), 'degenerate problem')} left out" if summary["degenerate"] else ""
    )
    table = Table(title=f"{name} against {against}: {summary['published']} published{left_out}; means over successes")
    for heading in ("", "mean", "geometric mean", "max", "p75 / p50 / p25", "success", "> 1.01x"):
        table.add_column(heading, justify="right" if heading else "left")
    rows = {"authors": summary["authors"], "authors, of those below": summary["authors_of_these"]}
    rows["here"] = {"success": summary["success"], **summary["measured"]}
    rows |= {f"  {level}": values for level, values in summary["measured_levels"].items()}
    for source, values in rows.items():
        if "mean" in values:
            mean, geomean, most, *rest = (format_speedup(values[column]) for column in COLUMNS)
            counts = (str(values["success"]), str(values["above_1_01"]))
            table.add_row(source, mean, geomean, most, " / ".join(rest), *counts)
    console.print(table)
    for reason, count in summary["reasons"].items():
        console.print(f"  {count:4d} {reason}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("published", type=Path, nargs="+", help="CUDA-L1's Parquet files")
    parser.add_argument("--rows", type=rows_of, default=slice(None), help="first:end:step")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--against", nargs="+", default=["eager"], choices=BASELINES)
    parser.add_argument("--rules", nargs="+", default=["default"], help="presets of evaluation.rules")
    parser.add_argument("--before", type=Path, default=None, help="result whose refused candidates are followed")
    parser.add_argument("--verdicts", type=Path, default=Path("runs/published"), help="folder of the verdicts' files")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--set", dest="overrides", nargs="+", default=[], metavar="evaluation.key=value")
    arguments = parser.parse_args()
    console, start = Console(), time.perf_counter()
    result: dict[str, Any] = {"rules": {}}
    by_rules: dict[str, dict[str, list[dict[str, Any]]]] = {}
    before = read_result(arguments.before)["metrics"] if arguments.before else None
    for rules, file, against in itertools.product(arguments.rules, arguments.published, arguments.against):
        overrides = [f"evaluation/rules={rules}", f"evaluation.against={against}", *arguments.overrides]
        config = evaluation_config(arguments.device, overrides)
        verdicts = arguments.verdicts / f"{file.stem}-{rules}-{against}.jsonl"
        rows = evaluate_rows(file, arguments.rows, config, verdicts, console)
        if against == "eager":
            by_rules.setdefault(rules, {})[file.stem] = rows
        summary = summarise(rows, authors(file, arguments.rows, against))
        files = result["rules"].setdefault(rules, {"files": {}})["files"]
        files.setdefault(file.stem, {})[against] = summary
        print_summary(f"{file.stem}, rules={rules},", against, summary, console)
        result["minutes"] = (time.perf_counter() - start) / 60
        if before is not None:
            result["refused_before"] = {"result": arguments.before.name, "reasons": fates(before, by_rules)}
        if arguments.out:
            write_result(arguments.out, result, vars(arguments))


if __name__ == "__main__":
    run_command(main)
