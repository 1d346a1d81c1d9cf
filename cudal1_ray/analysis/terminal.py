"""A run's results on the terminal: the table, what changed from stage to stage, and where the report is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from cudal1_ray.analysis.report import write_report
from cudal1_ray.analysis.run_data import SPLITS
from cudal1_ray.analysis.tables import (
    degenerate_text,
    fitting_table,
    format_interval,
    format_speedup,
    interval_of_ratio,
    print_table,
    split_name,
    stage_name,
)
from cudal1_ray.wording import counted


def present(run_folder: str | Path, console: Console) -> Path:
    """Write the run's report, print its table, what changed, where the report is and what to do next.

    Returns the report's path.

    Raises:
        UserError: the folder does not exist or holds no run.
    """
    page = write_report(run_folder)
    _print_summary(json.loads((page.parent / "summary.json").read_text(encoding="utf-8")), console)
    for line in closing_lines(Path(run_folder), page):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    return page


def closing_lines(run: Path, page: Path) -> list[str]:
    """Return the lines that name the report, the curves and the commands that go on from this run."""
    lines = [f"report: {page}"]
    if (run / "tb").is_dir():
        lines.append(f"curves: {shlex.join(['tensorboard', '--logdir', str(run / 'tb')])}")
    if any((run / folder).glob("*.parquet") for folder in ("rollouts", "assessed")):
        lines.append(f"next:   {shlex.join(['cudal1', 'samples', str(run)])}")
    if any((run / "checkpoints").glob("*-final")):
        lines.append(f"next:   {shlex.join(['cudal1', 'serve', f'policy={run}'])}")
    return lines


def _print_summary(summary: Mapping[str, Any], console: Console) -> None:
    """Print the table of a run, and its last stage against the earlier ones, on training and on held-out problems."""
    if not summary["stages"]:
        console.print(degenerate_text(summary) or "No stage of this run has been assessed yet.")
        return
    print_table(console, fitting_table(console, summary))
    for line in comparison_lines(summary):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def comparison_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return one line for each comparison, training problems first, or one for a split that was never solved."""
    lines = []
    for split in reversed(SPLITS):
        entries = [splits[split] for splits in summary["stages"].values() if split in splits]
        if entries and not any(entry["success_rate"] > 0 for entry in entries):
            problems = counted(entries[-1]["problems"], f"{split_name(split)} problem")
            lines.append(f"no sample of any stage is correct on the {problems}")
            continue
        for row in summary["comparisons"]:
            if row["split"] != split:
                continue
            line = (
                f"{stage_name(row['second'])} against {stage_name(row['first'])}, "
                f"{counted(row['problems'], f'{split_name(split)} problem')}: geometric mean times {_ratio(row)}, "
                f"success {100 * row['success_rate_difference']:+.0f} points"
            )
            if "copies_fail" in row:
                line += f"; times {_ratio(row['copies_fail'])} with copies as failures"
            lines.append(line)
    return lines


def _ratio(row: Mapping[str, Any]) -> str:
    interval = format_interval(interval_of_ratio(row))
    return format_speedup(row["speedup_ratio"]) + (f" ({interval})" if interval else "")
