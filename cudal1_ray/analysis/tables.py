"""The paper's table (mean, max, percentiles, success, > 1.01x), a geometric mean beside every mean.

One list of columns, three renderings: rich for the terminal, Markdown, HTML.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rich import markup
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.segment import SegmentLines
from rich.table import Table

from cudal1_ray.analysis.run_data import SPLITS
from cudal1_ray.wording import counted

# Columns that tables are made to fit into: those of a terminal as it opens.
LEAST_WIDTH = 80
STAGE_NAMES = {
    "untrained": "starting policy",  # of a run with init_from another run trained it
    "sft": "supervised fine-tuning",
    "self_supervised": "self-supervised",
    "contrastive": "contrastive RL",
    "untrained_with_exemplars": "starting policy, with exemplars",
    "self_supervised_with_own_exemplars": "self-supervised, with exemplars",
    "sft_with_exemplars": "control: supervised fine-tuning, with the exemplars found since",
    "self_supervised_with_exemplars": "control: self-supervised, with the exemplars found since",
    "start_with_exemplars": "control: starting policy, with the exemplars found since",
    "contrastive_without_exemplars": "contrastive RL, without exemplars",
}
SPLIT_NAMES = {"train": "train", "held_out": "held-out"}

# (heading, key, whether it is a share, whether an interval belongs under it). Copies have a column if there are any.
_COLUMNS = (
    ("mean", "mean", False, True),
    ("geometric mean", "geomean", False, True),
    ("p50 (median)", "median", False, True),
    ("max", "max", False, False),
    ("p75", "p75", False, False),
    ("p25", "p25", False, False),
    ("success", "success_rate", True, True),
    ("copies", "copied", True, False),
    ("> 1.01×", "above_1_01", True, False),
)


# Headings of the compact table.
_SHORT = {"geomean": "geomean", "median": "median"}


def stage_name(stage: str) -> str:
    return STAGE_NAMES.get(stage, stage.replace("_", " "))


def split_name(split: str) -> str:
    return SPLIT_NAMES.get(split, split.replace("_", " "))


def format_speedup(value: float) -> str:
    """Return a speedup with three significant figures: 0.95, 1.42, 24.1, 120."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def format_share(value: float) -> str:
    """Return a share as a percentage; only an exact 0 or 1 is printed as 0% or 100%."""
    if 0 < value < 0.005 or 0.995 <= value < 1:
        return f"{100 * value:.1f}%"
    return f"{100 * value:.0f}%"


def format_duration(seconds: float | None) -> str:
    """Return seconds as `42 s`, `5 min 03 s` or `2 h 07 min`, empty for None."""
    if seconds is None:
        return ""
    whole = int(round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_interval(bounds: tuple[float, float] | list[float] | None, share: bool = False) -> str:
    """Return an interval as `low to high`, empty for None."""
    if not bounds:
        return ""
    show = format_share if share else format_speedup
    return f"{show(bounds[0])} to {show(bounds[1])}"


def interval_of_ratio(row: Mapping[str, Any]) -> list[float] | None:
    """Return the interval of a summary's comparison, None where it has none."""
    low, high = row["speedup_ratio_low"], row["speedup_ratio_high"]
    return None if low is None else [low, high]


def degenerate_text(summary: Mapping[str, Any]) -> str:
    """Return one sentence on degenerate problems and what became of their samples; empty where there are none."""
    entry = summary.get("degenerate") or {}
    count = len(entry.get("problems", ()))
    if not count:
        return ""
    what = f"{counted(count, 'degenerate problem')} ({counted(entry['samples'], 'sample')})"
    fate = "left out of all means" if entry["left_out"] else "counted like all others"
    return f"Degenerate, that is with an output that does not depend on the input: {what}, {fate}."


def convention_text(summary: Mapping[str, Any]) -> str:
    """Return the sentences that belong under a table."""
    conventions = summary["conventions"]
    samples, temperature = conventions.get("samples_per_problem"), conventions.get("temperature")
    drawn = f"{_range(samples or 0)} sample{'' if samples == 1 else 's'} per problem"
    warm = f", temperature {temperature}" if temperature is not None else ""
    labels = [
        "{} on {}".format(stage_name(key.split("/")[0]), split_name(key.split("/")[-1]))
        for key, share in (conventions.get("asked_with_exemplars") or {}).items()
        if share > 0
    ]
    exemplars = f" Asked with exemplars in the prompt: {', '.join(labels)}; without: all others." if labels else ""
    if _has_copies(summary):
        exemplars += " Copies: accepted samples that equal such an exemplar; other columns count them like all others."
    text = f"{conventions['failure']} Small figures: {conventions['intervals']} {drawn}{warm}.{exemplars}"
    return f"{text} {degenerate_text(summary)}".rstrip()


def _range(values: Any) -> str:
    """Return a value, or the least and the largest of a list of them."""
    return f"{min(values)} to {max(values)}" if isinstance(values, list) else str(values)


def _has_copies(summary: Mapping[str, Any]) -> bool:
    return any(entry.get("copied", 0.0) > 0.0 for splits in summary["stages"].values() for entry in splits.values())


def _columns(summary: Mapping[str, Any], best_of_n: bool) -> list[tuple[str, str, bool, bool]]:
    """Return the columns that a table of a summary has."""
    copies = _has_copies(summary) and not best_of_n
    return [column for column in _COLUMNS if copies or column[1] != "copied"]


def _lines(summary: Mapping[str, Any], best_of_n: bool) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
    """Return (stage, split, count, [(value, interval) for each column]) for each line of the table."""
    lines = []
    for split in SPLITS:
        for stage, splits in summary["stages"].items():
            if split not in splits:
                continue
            entry = splits[split]
            if best_of_n:
                best = entry["best_of_n"]
                count, entry = (
                    f"{best['problems_solved']:g} of {entry['problems']} solved, n = {best['n']}",
                    best,
                )
            else:
                count = f"{counted(entry['problems'], 'problem')}, {counted(entry['samples'], 'sample')}"
            cells = []
            for _, key, share, interval in _columns(summary, best_of_n):
                text = format_share(entry[key]) if share else format_speedup(entry[key])
                cells.append((text, format_interval(entry["intervals"].get(key), share) if interval else ""))
            lines.append((stage, split, count, cells))
    return lines


def rich_table(summary: Mapping[str, Any], *, compact: bool = False, title: str = "") -> Table:
    """Return the table for a terminal, over all samples.

    `compact` leaves out the quartiles and all intervals except one, and fits into 80 columns.
    """
    table = Table(
        title=markup.escape(title or "Speedup over all samples"),
        caption=convention_text(summary),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("", no_wrap=not compact)  # a long name takes two lines before a figure is cut
    of_summary = _columns(summary, best_of_n=False)
    columns = [i for i, column in enumerate(of_summary) if not (compact and column[1] in ("p25", "p75"))]
    for i in columns:
        name, key = of_summary[i][:2]
        table.add_column(_SHORT.get(key, name) if compact else name, justify="right", no_wrap=True)
    previous = None
    for stage, split, _, cells in _lines(summary, best_of_n=False):
        if split != previous:
            table.add_row(f"[bold]{split_name(split)} problems[/bold]")
            previous = split
        figures = []
        for i in columns:
            value, interval = cells[i]
            interval_text = interval if not compact or of_summary[i][1] == "geomean" else ""
            figures.append(f"{value}\n[dim]{interval_text}[/dim]" if interval_text else value)
        table.add_row(f"  {markup.escape(stage_name(stage))}", *figures)
    return table


def fitting_table(console: Console, summary: Mapping[str, Any], title: str = "") -> Table:
    """Return the whole table where the terminal is wide enough for it, otherwise the compact one."""
    table = rich_table(summary, title=title)
    fits = console.measure(table, options=console.options.update(max_width=10_000)).maximum <= console.width
    return table if fits else rich_table(summary, compact=True, title=title)


def print_table(console: Console, table: Table) -> None:
    """Print a table with every figure in full: on a terminal that is too narrow for them its lines go on below."""
    width = max(console.width, LEAST_WIDTH)
    lines = console.render_lines(table, console.options.update_width(width), pad=False)
    console.print(SegmentLines(lines, new_lines=True), soft_wrap=True, end="")


def markdown_table(summary: Mapping[str, Any], *, best_of_n: bool = False) -> str:
    """Return the table as Markdown, with the convention under it."""
    headings = ["stage", "split", "over", *(heading for heading, *_ in _columns(summary, best_of_n))]
    rows = []
    for stage, split, count, cells in _lines(summary, best_of_n):
        figures = [f"{value} ({interval})" if interval else value for value, interval in cells]
        rows.append([stage_name(stage), split_name(split), count, *figures])
    lines = markdown_lines(headings, rows, right_aligned=range(3, len(headings)))
    return "\n".join(lines) + f"\n\n{convention_text(summary)}\n"


def markdown_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], right_aligned: Collection[int] = ()
) -> list[str]:
    """Return the lines of a Markdown table; a cell's line breaks become spaces and its bars are escaped.

    Args:
        right_aligned: columns of figures, by their place.
    """
    rules = ["---:" if place in right_aligned else "---" for place in range(len(headings))]
    plain = ([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in [headings, *rows])
    heading, *lines = [f"| {' | '.join(cells)} |" for cells in plain]
    return [heading, f"|{'|'.join(rules)}|", *lines]


def html_table(summary: Mapping[str, Any], *, best_of_n: bool = False, convention: bool = True) -> str:
    """Return the table as an HTML fragment (`<table class="results">`), with the convention under it."""
    columns = _columns(summary, best_of_n)
    head = "".join(f"<th class=number>{escape(heading)}</th>" for heading, *_ in columns)
    body, previous = [], None
    for stage, split, count, cells in _lines(summary, best_of_n):
        if split != previous:
            name = escape(split_name(split))
            body.append(f'<tr class="split"><th colspan="{len(columns) + 1}">{name} problems</th></tr>')
            previous = split
        figures = "".join(
            f'<td class="number">{escape(value)}<small>{escape(interval)}</small></td>' for value, interval in cells
        )
        body.append(f'<tr><th scope="row">{escape(stage_name(stage))}<small>{escape(count)}</small></th>{figures}</tr>')
    note = f'<p class="convention">{escape(convention_text(summary))}</p>' if convention else ""
    return (
        f'<div class="scroll"><table class="results"><thead><tr><th>stage</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>{note}"
    )
