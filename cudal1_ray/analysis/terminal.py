"""A run's results on the terminal: the table, what changed from stage to stage, and where the report is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from .report import write_report
from .run_data import read_run
from .summary import summarise
from .tables import degenerate_text, format_speedup, rich_table, split_name, stage_name

_FULL_WIDTH = 114


def present(run_folder: str | Path, console: Console) -> Path:
    """Writes the run's report, prints its table and the report's path, and returns that path.

    Raises:
        UserError: the folder does not exist or holds no run.
    """
    page = write_report(run_folder)
    print_summary(run_folder, console)
    console.print(f"report: {page}", highlight=False, soft_wrap=True)
    return page


def print_summary(run_folder: str | Path, console: Console) -> None:
    """Prints the table of a run, and its last stage against the earlier ones on held-out problems.

    Takes report/summary.json where that is no older than the assessments, and computes it otherwise.

    Raises:
        UserError: the folder does not exist or holds no run.
    """
    summary = _summary(Path(run_folder))
    if not summary["stages"]:
        console.print(degenerate_text(summary) or "No stage of this run has been assessed yet.")
        return
    console.print(rich_table(summary, compact=console.width < _FULL_WIDTH))
    held_out = [c for c in summary["comparisons"] if c["split"] == "held_out"]
    for c in held_out or summary["comparisons"]:
        bounds = f"{format_speedup(c['speedup_ratio_low'])} to {format_speedup(c['speedup_ratio_high'])}"
        console.print(
            f"{stage_name(c['second'])} against {stage_name(c['first'])}, "
            f"{c['problems']} {split_name(c['split'])} problems: "
            f"geometric mean times {format_speedup(c['speedup_ratio'])} ({bounds}), "
            f"success {100 * c['success_rate_difference']:+.0f} points",
            highlight=False,
        )


def _summary(folder: Path) -> dict[str, Any]:
    written, assessed = folder / "report" / "summary.json", folder / "assessments.jsonl"
    if written.is_file() and assessed.is_file() and written.stat().st_mtime >= assessed.stat().st_mtime:
        return json.loads(written.read_text(encoding="utf-8"))
    return summarise(read_run(folder))
