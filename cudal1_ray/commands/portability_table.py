"""Does a kernel that is fast on one accelerator type stay fast on another? One table over the same kernels."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from cudal1_ray.analysis.tables import format_interval, format_speedup, markdown_lines
from cudal1_ray.commands.evaluate_manifest import summary
from cudal1_ray.commands.manifest import FIGURES

Row = Mapping[str, Any]  # of a verdicts' file
MEANS = (("mean", "mean"), ("median", "median"), ("geometric mean", "geometric_mean"))


@dataclass(frozen=True)
class KernelLine:
    """One kernel on every type.

    Attributes:
        identity: the row's id in the manifest.
        rows: its verdict on each type; the types where it has none are left out.
    """

    identity: str
    problem_id: str
    rows: Mapping[str, Row]

    @property
    def faster_on(self) -> list[str]:
        """Return the types where the whole 95% interval of an accepted kernel lies above 1."""
        return [kind for kind, row in self.rows.items() if _accepted(row) and row["speedup_low"] > 1]

    @property
    def slower_on(self) -> list[str]:
        """Return the types where it lies below 1: the reference is faster there."""
        return [kind for kind, row in self.rows.items() if _accepted(row) and row["speedup_high"] < 1]

    @property
    def rejected_on(self) -> list[str]:
        return [kind for kind, row in self.rows.items() if not _accepted(row)]

    @property
    def flag(self) -> str:
        """Return where a kernel that is faster on one type is no gain: slower than the reference, or rejected; else
        empty.
        """
        if not self.faster_on or any(row.get("degenerate") for row in self.rows.values()):
            return ""
        flags = [("slower", self.slower_on), ("rejected", self.rejected_on)]
        return "; ".join(f"{what} on {', '.join(kinds)}" for what, kinds in flags if kinds)


@dataclass(frozen=True)
class Portability:
    """The table: a line for each kernel, a column for each accelerator type."""

    types: tuple[str, ...]
    lines: tuple[KernelLine, ...]
    device: str
    against: str

    @property
    def flagged(self) -> list[KernelLine]:
        return [line for line in self.lines if line.flag]

    @property
    def everywhere(self) -> list[KernelLine]:
        """Return the kernels accepted on every type, on problems that mean something: what means of types can be
        compared over.
        """
        return [
            line
            for line in self.lines
            if len(line.rows) == len(self.types)
            and all(_accepted(row) and not row.get("degenerate") for row in line.rows.values())
        ]

    def summaries(self) -> dict[str, dict[str, Any]]:
        """Return for each type the summary of `cudal1 evaluate` over its verdicts, and the geometric mean over
        `everywhere`.
        """
        by_type = {}
        for kind in self.types:
            common = [line.rows[kind]["credited_speedup"] for line in self.everywhere]
            mean = statistics.geometric_mean(common) if common else None
            rows = [line.rows[kind] for line in self.lines if kind in line.rows]
            by_type[kind] = {**summary(rows), "geometric_mean_everywhere": mean}
        return by_type

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only, ready for JSON."""
        kernels = []
        for line in self.lines:
            entries = {
                kind: {"verdict": row["verdict"], "reasons": row["reasons"], **{name: row[name] for name in FIGURES}}
                for kind, row in line.rows.items()
            }
            kernels.append({"id": line.identity, "problem_id": line.problem_id, "on": entries, "flag": line.flag})
        return {
            "device": self.device,
            "against": self.against,
            "types": self.summaries(),
            "accepted_everywhere": len(self.everywhere),
            "flagged": len(self.flagged),
            "kernels": kernels,
        }


def portability(
    problem_ids: Mapping[str, str], verdicts: Mapping[str, Mapping[str, Row]], device: str, against: str
) -> Portability:
    """Return the table of the kernels in `problem_ids` (row id -> problem id), from `verdicts[type][row id]`."""
    lines = []
    for identity, problem_id in problem_ids.items():
        rows = {kind: rows[identity] for kind, rows in verdicts.items() if identity in rows}
        lines.append(KernelLine(identity, problem_id, rows))
    return Portability(tuple(verdicts), tuple(lines), device, against)


def _accepted(row: Row) -> bool:
    return row["verdict"] == "accepted"


def _entry(row: Row | None) -> tuple[str, str]:
    """Return an entry of the table and what stands small beside it: speedup and interval, or why there is none."""
    if row is None:
        return "", "not measured"
    if not _accepted(row):
        return "rejected", ", ".join(row["reasons"])
    return f"{format_speedup(row['speedup'])}x", format_interval((row["speedup_low"], row["speedup_high"]))


def _last_lines(table: Portability) -> list[tuple[str, list[str]]]:
    """Return what stands under the kernels: heading, a value for each type."""
    summaries = table.summaries()

    def values(key: str) -> list[str]:
        return [
            "" if summaries[kind][key] is None else f"{format_speedup(summaries[kind][key])}x" for kind in table.types
        ]

    rows = [("accepted", [f"{summaries[kind]['accepted']} of {summaries[kind]['rows']}" for kind in table.types])]
    rows += [(heading, values(key)) for heading, key in MEANS]
    common = len(table.everywhere)
    return [*rows, (f"geometric mean of the {common} accepted everywhere", values("geometric_mean_everywhere"))]


def _caption(table: Portability) -> str:
    flagged = len(table.flagged)
    return (
        f"Speedup against {table.against} on each accelerator type, with its 95% interval; means are of credited "
        f"speedups. Flagged, being faster on one type and slower or rejected on another: {flagged or 'none'}."
    )


def rich_table(table: Portability, most_kernels: int = 40) -> Table:
    """Return the table for a terminal; of more kernels than `most_kernels` only those that are flagged."""
    few = len(table.lines) <= most_kernels
    lines = table.lines if few else table.flagged[:most_kernels]
    left = "" if few else f" {len(table.lines) - len(lines)} of {len(table.lines)} kernels are only in the file."
    rich = Table(box=SIMPLE_HEAD, caption=_caption(table) + left, caption_justify="left", pad_edge=False)
    rich.add_column("kernel", overflow="fold")
    for kind in table.types:
        rich.add_column(kind, justify="right")
    rich.add_column("flag", overflow="fold")
    for line in lines:
        cells = []
        for kind in table.types:
            value, small = _entry(line.rows.get(kind))
            colour = "[red]" if kind in line.slower_on + line.rejected_on else ""
            cells.append(f"{colour}{value}{'[/]' if colour else ''}\n[dim]{escape(small)}[/]")
        rich.add_row(f"{escape(line.identity)}\n[dim]{escape(line.problem_id)}[/]", *cells, escape(line.flag))
    rich.add_section()
    for heading, values in _last_lines(table):
        rich.add_row(heading, *values, "")
    return rich


def markdown_table(table: Portability) -> str:
    """Return all kernels, as Markdown."""
    rows = []
    for line in table.lines:
        entries = [_entry(line.rows.get(kind)) for kind in table.types]
        cells = [f"{value} ({small})" if value else small for value, small in entries]
        rows.append([line.identity, line.problem_id, *cells, line.flag])
    rows += [[heading, "", *values, ""] for heading, values in _last_lines(table)]
    headings = ["kernel", "problem", *table.types, "flag"]
    lines = markdown_lines(headings, rows, right_aligned=range(2, len(headings) - 1))
    return "\n".join(lines) + f"\n\n{_caption(table)}\n"
