"""A sweep's results: a table and tests on the terminal, and the same with one figure as a page for the browser."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cudal1_ray.analysis.figure import ACCENT, ACCENT_2, CARD, INK, MUTED, WIDTH, Plot, draw, label_beside, speedup_axis
from cudal1_ray.analysis.report import read_template, template
from cudal1_ray.analysis.run_data import SPLITS
from cudal1_ray.analysis.summary import save_summary, write_report_file
from cudal1_ray.analysis.sweep import summarise_sweep
from cudal1_ray.analysis.tables import (
    fitting_table,
    format_interval,
    format_speedup,
    html_table,
    markdown_lines,
    markdown_table,
    print_table,
    split_name,
    stage_name,
)


def present_sweep(folder: str | Path, console: Console) -> Path:
    """Write report/sweep.json, report/table.md and report/index.html, print the table and the tests.

    Returns the page's path.

    Raises:
        UserError: when the folder holds no sweep, or none of its runs is finished and assessed.
    """
    summary, report = summarise_sweep(folder), Path(folder) / "report"
    page = report / "index.html"
    save_summary(summary, report / "sweep.json")
    write_report_file(report / "table.md", sweep_markdown(summary))
    write_report_file(page, sweep_html(summary))
    title = f"Sweep {summary['folder']}, after {stage_name(summary['stage'])}: means over seeds"
    print_table(console, fitting_table(console, _as_stages(summary), title))
    if summary["comparisons"]:
        console.print(_tests(summary))
    for job, state in summary["unfinished"].items():
        console.print(f"not in the table: {job} ({state})", highlight=False, markup=False, soft_wrap=True)
    console.print(f"report: {page}", highlight=False, markup=False, soft_wrap=True)
    return page


def sweep_markdown(summary: Mapping[str, Any]) -> str:
    """Return table and tests as Markdown."""
    table = markdown_table(_as_stages(summary)).replace("| stage |", "| setting |", 1)
    headings = ["against", "split", "pairs of seeds", "ratio (interval)", "success", "p", "p, Holm"]
    lines = markdown_lines(headings, _test_rows(summary))
    return table + ("\n" + "\n".join(lines) + "\n" if summary["comparisons"] else "")


def sweep_html(summary: Mapping[str, Any]) -> str:
    """Return the page, which needs nothing but a browser."""
    table = html_table(_as_stages(summary)).replace("<th>stage</th>", "<th>setting</th>", 1)
    return template("sweep.html.j2").render(
        style=Markup(read_template("style.css")),
        summary=summary,
        stage=stage_name(summary["stage"]),
        table=Markup(table),
        tests=_test_rows(summary),
        plot=settings_plot(summary),
    )


def settings_plot(summary: Mapping[str, Any]) -> Plot:
    """Plot geometric mean speedup of every setting: each seed a dot, their mean with its interval."""
    settings = summary["settings"]
    splits = [split for split in SPLITS if any(split in s["splits"] for s in settings.values())]
    inks = dict(zip(splits, (ACCENT, ACCENT_2), strict=False))

    dots = [v for s in settings.values() for entry in s["splits"].values() for v in entry["geomean_per_seed"].values()]
    # An interval of two seeds may be wider than any axis: it is cut where dots can still be distinguished.
    least, most = min(dots) / 3, max(dots) * 3

    def paint(figure, narrow: bool) -> None:
        axes = figure.subplots()
        ends = []
        for place, setting in enumerate(settings.values()):
            for split, entry in setting["splits"].items():
                y = place + (0.0 if len(splits) == 1 else -0.16 if split == splits[0] else 0.16)
                seeds = list(entry["geomean_per_seed"].values())
                low, high = entry["intervals"].get("geomean") or (entry["geomean"], entry["geomean"])
                low, high = max(low, least), min(high, most)
                axes.plot([low, high], [y, y], color=inks[split], linewidth=2.2, alpha=0.55)
                axes.plot(entry["geomean"], y, "o", markersize=8, color=inks[split], zorder=3)
                axes.plot(seeds, [y] * len(seeds), "o", markersize=4, color=CARD, mec=inks[split], zorder=4)
                text = f"{format_speedup(entry['geomean'])}×  {split_name(split)}"
                label_beside(axes, text, (max(high, *seeds), y), 8, 8, INK if split == splits[0] else MUTED)
                ends += [low, high, *seeds]
        speedup_axis(axes, min(ends), max(ends) * (max(ends) / min(ends)) ** 0.2, which="x")
        labels = [textwrap.fill(stage_name(label), 16 if narrow else 120) for label in settings]
        axes.set_yticks(range(len(settings)), labels=labels)
        axes.set(title="geometric mean speedup (log scale)", ylim=(len(settings) - 0.5, -0.5))
        axes.tick_params(axis="y", labelcolor=INK)
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")

    caption = (
        f"After {stage_name(summary['stage'])}. Small dots are seeds, the large one their mean with its 95% Student t "
        f"interval. A failure counts as {summary['conventions']['failure_in_geomean']:g}× in the geometric mean."
    )
    return draw("settings", "What each setting reached", caption, (WIDTH, 0.62 * len(settings) + 0.8), paint)


def _as_stages(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary in the form that the tables of a run take: a line is a setting instead of a stage."""
    stages = {label: setting["splits"] for label, setting in summary["settings"].items()}
    return {"stages": stages, "conventions": summary["conventions"], "degenerate": summary.get("degenerate")}


def _test_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for row in summary["comparisons"]:
        interval = format_interval([row["low"], row["high"]] if row["low"] is not None else None)
        rows.append(
            [
                f"{stage_name(row['second'])} against {stage_name(row['first'])}",
                split_name(row["split"]),
                str(row["pairs"]),
                f"{format_speedup(row['ratio'])}×" + (f" ({interval})" if interval else ""),
                f"{100 * row['success_rate_difference']:+.0f} points",
                _p_value(row["p_value"]),
                _p_value(row["p_adjusted"]),
            ]
        )
    return rows


def _p_value(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _tests(summary: Mapping[str, Any]) -> Table:
    table = Table(title="Is the difference more than chance?", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.caption = (
        "t test over pairs of runs with the same seed (Welch's where seeds differ); Holm: for this many tests."
    )
    table.caption_justify = "left"
    for heading in ("", "split", "pairs", "ratio", "success", "p", "p, Holm"):
        table.add_column(heading, justify="left" if heading in ("", "split") else "right")
    for cells in _test_rows(summary):
        table.add_row(*map(escape, cells))
    return table
