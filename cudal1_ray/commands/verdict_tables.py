"""Verdicts as tables for a reader: one candidate's, and beside several baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.reasons import describe
from cudal1_ray.evaluation.sandbox.walls import UNCONFINED
from cudal1_ray.rewards import is_void

KINDS = {
    "failure": "failure: it does not work, or is wrong",
    "policy": "policy: a rule in force refuses it",
    "hack": "hack: it would be credited for what it does not do",
}
# How a void verdict is printed, whatever its kind.
VOID = "void: it says nothing about the candidate"


@dataclass(frozen=True)
class BaselineRow:
    """The candidate beside one baseline, measured together. Times are medians per call; all figures are 0.0 where
    `missing` states why there are none.
    """

    baseline: str
    baseline_ms: float = 0.0
    runtime_ms: float = 0.0
    speedup: float = 0.0
    speedup_low: float = 0.0
    speedup_high: float = 0.0
    missing: str = ""

    @classmethod
    def of(cls, baseline: str, verdict: Verdict) -> BaselineRow:
        if not verdict.accepted:
            return cls(baseline, missing=f"{baseline}: {', '.join(verdict.reasons)}, {verdict.detail}")
        times = (verdict.reference_ms, verdict.runtime_ms)
        return cls(baseline, *times, verdict.speedup, verdict.speedup_low, verdict.speedup_high)


def verdict_table(verdict: Verdict, settings: Iterable[str] = (), remaining: Iterable[str] = ()) -> Table:
    """Return a verdict as a table for a reader: the decision first, then what it was made of.

    Args:
        settings: with which the rules that refuse it would not.
        remaining: reasons for which it would be refused all the same.
    """
    table = Table(show_header=False, box=None, padding=(0, 2))
    colour = "green" if verdict.accepted else "red"
    table.add_row("verdict", f"[bold {colour}]{verdict.status}[/]")
    if verdict.reasons:
        table.add_row("kind", VOID if is_void(verdict) else KINDS[verdict.kind])
    for reason in verdict.reasons:
        table.add_row("reason", f"{reason}: {describe(reason)}")
    if laxer := " ".join(settings):
        refused = ", ".join(remaining)
        table.add_row("allowed by", f"nothing: with {laxer} it is refused for {refused}" if refused else laxer)
    for flag in verdict.flags:
        table.add_row("flag", f"{flag}: {describe(flag)}")
    if verdict.own_kernel:
        share = f", {verdict.own_kernel_share:.0%} of the time" if verdict.own_kernel_share else ""
        table.add_row("own kernel", f"yes{share}")
    if verdict.detail:
        table.add_row("detail", escape(verdict.detail))
    if verdict.degenerate:
        table.add_row("problem", "[yellow]degenerate[/]: its output does not depend on its input")
    if verdict.timed_runs:
        interval = f"95% interval {verdict.speedup_low:.3f} to {verdict.speedup_high:.3f}"
        table.add_row("speedup", f"[bold]{verdict.speedup:.3f}x[/]  ({interval})")
        table.add_row("credited", f"{verdict.credited_speedup:.3f}x")
        table.add_row("candidate", f"{verdict.runtime_ms:.4f} ms")
        table.add_row("reference", f"{verdict.reference_ms:.4f} ms")
        if len(each := [pair.speedup for pair in verdict.processes if pair.counted]) > 1:
            table.add_row("processes", f"{len(each)} pairs, {min(each):.3f}x to {max(each):.3f}x")
        if verdict.remeasured:
            where = "another device" if verdict.confirmed_on == "another_device" else "the same device"
            table.add_row(
                "confirmed", f"{', then '.join(f'{speedup:.3f}x' for speedup in verdict.remeasured)} on {where}"
            )
        if verdict.device_speedup:
            table.add_row("device alone", f"{verdict.device_speedup:.3f}x  (without launches; not credited)")
        table.add_row("timed runs", f"{verdict.timed_runs:,} on {verdict.device}, {verdict.evaluation_s:.2f} s in all")
        table.add_row("device", escape(verdict.hardware))
    elif verdict.accepted:  # it runs the reference's own operators, in their order
        table.add_row("speedup", f"[bold]{verdict.speedup:.3f}x[/]  (not measured)")
    if verdict.sandbox:
        open_ = "  [yellow](a candidate can write your files here)[/]" if verdict.sandbox in UNCONFINED else ""
        table.add_row("sandbox", f"{verdict.sandbox}{open_}")
    return table


def baseline_table(rows: list[BaselineRow]) -> Table:
    """Return a table of what the candidate is faster than, each row measured by the same referee."""
    table = Table(box=None, padding=(0, 1), title_justify="left")
    for column in ("against", "baseline ms", "candidate ms", "speedup", "95% interval"):
        table.add_column(column, justify="left" if column == "against" else "right", no_wrap=True)
    for row in rows:
        if row.missing:
            continue
        figures = (f"{row.baseline_ms:.4f}", f"{row.runtime_ms:.4f}", f"{row.speedup:.3f}x")
        table.add_row(escape(row.baseline), *figures, f"{row.speedup_low:.3f} to {row.speedup_high:.3f}")
    return table


def not_measured(rows: list[BaselineRow], left: list[str]) -> Iterator[str]:
    """Yield a line for each baseline that cannot be had, and one for those that were not asked for."""
    yield from (f" [dim]{escape(row.missing)}[/]" for row in rows if row.missing)
    if left:
        yield f" [dim]not asked for: {', '.join(left)} (--against all)[/]"
