"""Figures of what was reached: stages, distributions, problem by problem, reasons of rejection."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cudal1_ray.analysis.comparison import samples_of
from cudal1_ray.analysis.figure import (
    ACCENT,
    CARD,
    FAIL,
    GRID,
    HEAT,
    INK,
    MUTED,
    NARROW_WIDTH,
    WIDTH,
    Plot,
    draw,
    hover_patch,
    hover_points,
    label_beside,
    speedup_axis,
    stage_ink,
)
from cudal1_ray.analysis.run_data import SPLITS, RunData, counted_rows, credited_speedup, is_accepted, text_list
from cudal1_ray.analysis.statistics import geometric_mean
from cudal1_ray.analysis.tables import format_interval, format_share, format_speedup, split_name, stage_name
from cudal1_ray.evaluation.reasons import describe
from cudal1_ray.wording import counted

_NO_ASSESSMENT = "No stage of this run has been assessed yet."
# Upper edges of the heat colours, as speedups; the fifth of nine holds 0.95x to 1.05x.
HEAT_EDGES = (0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 1.6, 2.5)


def stages_plot(summary: Mapping[str, Any]) -> Plot:
    """Plot geometric mean speedup and success rate of each stage, train against held-out, with intervals."""
    name, title = "stages", "What each stage brought"
    caption = (
        f"Bars are {summary['conventions']['confidence']:.0%} intervals. "
        "Filled: held-out problems, never trained on; "
        "hollow: train problems. A failure counts as "
        f"{summary['conventions']['failure_in_geomean']:g}× in the geometric mean."
    )
    stages = summary["stages"]
    if not stages:
        return Plot(name, title, caption, omitted=_NO_ASSESSMENT)

    def paint(figure, narrow: bool) -> None:
        if narrow:
            left, right = figure.subplots(2, 1, sharey=True)
        else:
            left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        lows, highs = [], []
        for place, (stage, splits) in enumerate(stages.items()):
            for split, entry in splits.items():
                y = place + (0.0 if len(splits) == 1 else -0.16 if split == "held_out" else 0.16)
                ink, filled = stage_ink(stage), split == "held_out"
                for axes, metric, show in ((left, "geomean", format_speedup), (right, "success_rate", format_share)):
                    bounds = entry["intervals"].get(metric)
                    low, high = bounds or (entry[metric], entry[metric])
                    if metric == "geomean":
                        lows.append(low)
                        highs.append(high)
                    axes.plot([low, high], [y, y], color=ink, linewidth=2.2, alpha=0.55)
                    face = ink if filled else CARD
                    axes.plot(entry[metric], y, "o", markersize=7.5, mew=1.8, mec=ink, color=face, zorder=3)
                    where = f"{stage_name(stage)}, {split_name(split)}: {show(entry[metric])}"
                    if interval := format_interval(bounds, share=metric == "success_rate"):
                        where += f" ({interval})"
                    hover_points(axes, [entry[metric]], [y], [where])
                    unit = "×" if metric == "geomean" else ""
                    text = f"{show(entry[metric])}{unit}  {split_name(split)}"
                    label_beside(axes, text, (high, y), 8, 8, INK if filled else MUTED)
        speedup_axis(left, min(lows), max(highs) * (max(highs) / min(lows)) ** 0.25, which="x")
        right.set_xlim(-0.04, 1.32)
        right.set_xticks([0, 0.5, 1], labels=["0%", "50%", "100%"])
        left.set(title="geometric mean speedup (log scale)", ylim=(len(stages) - 0.5, -0.5))
        right.set(title="share of samples that are correct")
        left.set_yticks(range(len(stages)), labels=_stage_labels(stages, narrow))
        for axes in (left, right):
            axes.tick_params(axis="y", labelcolor=INK)
            axes.grid(axis="x")
            axes.grid(visible=False, axis="y")

    tall = 0.72 * len(stages) + 0.8
    return draw(name, title, caption, (WIDTH, tall), paint, (NARROW_WIDTH, 2 * tall))


def distribution_plot(run: RunData, split: str) -> Plot:
    """Plot a histogram of accepted speedups of each stage on a logarithmic axis, one below the other."""
    name, title = "distribution", f"Distribution of speedups, {split_name(split)} problems"
    caption = "Height is the share of all samples of the stage; failures are off the axis and written at the left."
    sets = {stage: samples_of(run.assessments, stage, split) for stage in run.stages()}
    sets = {stage: samples for stage, samples in sets.items() if len(samples.problem_ids)}
    if not sets:
        return Plot(name, title, caption, omitted=_NO_ASSESSMENT)
    values = {stage: s.speedups[~np.isnan(s.speedups)] for stage, s in sets.items()}
    every = np.concatenate([v[v > 0] for v in values.values()])
    if not len(every):
        return Plot(
            name,
            title,
            caption,
            omitted=f"No {split_name(split)} sample has been accepted, so none has a speedup.",
        )

    def paint(figure, narrow: bool) -> None:
        rows = figure.subplots(len(values), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        low, high = min(float(every.min()), 0.9), max(float(every.max()), 1.15)
        edges = np.exp(np.linspace(np.log(low / 1.03), np.log(high * 1.03), 56))
        for axes, (stage, all_values) in zip(rows, values.items(), strict=True):
            accepted = all_values[all_values > 0]
            heights = np.histogram(accepted, edges)[0] / len(all_values)
            axes.stairs(heights, edges, fill=True, color=stage_ink(stage), alpha=0.9)
            speedup_axis(axes, low, high, which="x")
            axes.grid(False)
            axes.set_yticks([])
            failed = 1 - len(accepted) / len(all_values)
            axes.set_ylabel(
                f"{_stage_labels([stage], narrow)[0]}\n{format_share(failed)} failed",
                rotation=0,
                ha="right",
                va="center",
                color=INK,
                labelpad=10,
                fontsize=9,
            )
            if len(accepted):
                median = float(np.median(accepted))
                axes.annotate(
                    f"median of accepted {format_speedup(median)}×",
                    (0.995, 0.8),
                    xycoords="axes fraction",
                    ha="right",
                    color=MUTED,
                    fontsize=8.5,
                )
        rows[-1].set_xlabel("speedup (log scale)")

    return draw(name, title, caption, (WIDTH, 0.95 * len(values) + 0.5), paint)


def problems_plot(run: RunData) -> Plot:
    """Plot the geometric mean speedup as colour, one column for each problem, one row for each stage."""
    name, title = "problems", "Problem by problem"
    caption = (
        "Each column is a problem, sorted by its last stage; orange is slower than the reference, blue "
        "faster, grey about equal, and a cross means that no sample was correct. Geometric mean over the "
        "accepted samples of the problem."
    )
    stages = [stage for stage in run.stages() if any(row.get("stage") == stage for row in run.assessments)]
    if not stages:
        return Plot(name, title, caption, omitted=_NO_ASSESSMENT)
    cells = _problem_cells(run, stages)
    last = stages[-1]
    groups = [
        (
            split,
            sorted(
                (p for s, p in cells if s == split),
                key=lambda p: [-cells[(split, p)].get(stage, -1.0) for stage in reversed(stages)],
            ),
        )
        for split in SPLITS
    ]
    groups = [(split, problems) for split, problems in groups if problems]
    if not groups:
        return Plot(name, title, caption, omitted=_NO_ASSESSMENT)
    total = sum(len(problems) for _, problems in groups)
    labelled = total <= 44

    def paint(figure, narrow: bool) -> None:
        ratios = [max(len(problems), 2) for _, problems in groups]
        if narrow:
            panels = figure.subplots(len(groups), 1, sharex=True, height_ratios=ratios, squeeze=False)[:, 0]
        else:
            panels = figure.subplots(1, len(groups), sharey=True, width_ratios=ratios, squeeze=False)[0]
        for axes, (split, problems) in zip(panels, groups, strict=True):
            for (problem, stage), value in _values(cells, split, problems, stages):
                place = (problems.index(problem), stages.index(stage))
                column, row = place[::-1] if narrow else place
                ink = HEAT[int(np.searchsorted(HEAT_EDGES, value))] if value > 0 else CARD
                cell = axes.add_patch(_cell(column, row, ink))
                reached = f"{format_speedup(value)}×" if value > 0 else "no sample correct"
                hover_patch(cell, f"{problem}, {stage_name(stage)}: {reached}")
                if value <= 0:
                    axes.plot(column, row, "x", color=FAIL, markersize=4, markeredgewidth=1.0)
                elif narrow or (total <= 26 and stage == last):
                    size = 8.0 if narrow else 6.5
                    axes.text(column, row, format_speedup(value), ha="center", va="center", fontsize=size, color=INK)
            labels = [_short(problem) for problem in problems]
            axes.set_title(f"{split_name(split)} ({len(problems)})")
            if narrow:
                axes.set(xlim=(-0.5, len(stages) - 0.5), ylim=(len(problems) - 0.5, -0.5))
                axes.set_yticks(range(len(problems)), labels=labels, fontsize=8.5)
                axes.set_xticks(range(len(stages)), labels=_stage_labels(stages, narrow), fontsize=8.5)
                axes.tick_params(axis="x", rotation=90)
            else:
                axes.set(xlim=(-0.5, len(problems) - 0.5), ylim=(len(stages) - 0.5, -0.5))
                axes.set_yticks(range(len(stages)), labels=_stage_labels(stages, narrow))
                axes.set_xticks(range(len(problems)) if labelled else [])
                if labelled:
                    axes.set_xticklabels(labels, rotation=50, ha="right", fontsize=7.5, rotation_mode="anchor")
            axes.tick_params(axis="y", labelcolor=INK)
            axes.grid(False)
            axes.spines["bottom"].set_visible(False)

    width = min(WIDTH, 2.2 + 0.55 * total)  # few problems: cells stay cells
    tall = 0.42 * len(stages) + (1.5 if labelled else 0.5)
    return draw(name, title, caption, (width, tall), paint, (NARROW_WIDTH, 0.22 * total + 0.3 * len(groups) + 1.3))


def rejections_plot(run: RunData) -> Plot:
    """Plot how many candidates were rejected for each reason."""
    name, title = "rejections", "Why candidates were rejected"
    rows = run.rollouts or run.assessments
    what = "rollout" if run.rollouts else "assessed sample"
    counts = rejection_counts(run)
    rejected = sum(not is_accepted(row) for row in rows if row.get("status"))
    caption = f"Rejected: {rejected} of {counted(len(rows), what)}; a candidate may be rejected for several reasons."
    if not counts:
        return Plot(name, title, caption, omitted="No candidate has been rejected, or none has been evaluated yet.")
    frequent = counts[:14]

    def paint(figure, narrow: bool) -> None:
        axes = figure.subplots()
        bars = axes.barh(range(len(frequent)), [count for _, count in frequent], color=ACCENT, height=0.62, alpha=0.85)
        for place, (bar, (reason, count)) in enumerate(zip(bars, frequent, strict=True)):
            hover_patch(bar, f"{reason}: {describe(reason)}")
            text = f"{count}  ({format_share(count / max(1, len(rows)))})"
            label_beside(axes, text, (count, place), 6, 8.5, MUTED)
        axes.set_yticks(range(len(frequent)), labels=[reason.replace("_", " ") for reason, _ in frequent])
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set(ylim=(len(frequent) - 0.5, -0.5), xlim=(0, frequent[0][1] * (1.5 if narrow else 1.18)))
        axes.set_xticks([])
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)

    return draw(name, title, caption, (WIDTH, 0.3 * len(frequent) + 0.45), paint)


def rejection_counts(run: RunData) -> list[tuple[str, int]]:
    """Return (reason, candidates) of the rollouts, or of the assessments without any; most frequent first."""
    counts: Counter[str] = Counter()
    for row in run.rollouts or run.assessments:
        if row.get("status") and not is_accepted(row):
            counts.update(set(text_list(row.get("reasons"))) or {"no reason given"})
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _problem_cells(run: RunData, stages: list[str]) -> dict[tuple[str, str], dict[str, float]]:
    """Return {(split, problem): {stage: geometric mean of accepted samples, 0.0 when none was accepted}}."""
    accepted: dict[tuple[str, str, str], list[float]] = {}
    for row in counted_rows(run.assessments):
        key = (str(row.get("split")), str(row.get("problem_id")), str(row.get("stage")))
        accepted.setdefault(key, []).extend([credited_speedup(row)] if is_accepted(row) else [])
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for (split, problem, stage), speedups in accepted.items():
        if stage in stages:
            value = geometric_mean(speedups) if speedups else 0.0
            cells.setdefault((split, problem), {})[stage] = value
    return cells


def _cell(column: int, row: int, ink: str):
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.46, row - 0.42), 0.92, 0.84, facecolor=ink, edgecolor=GRID, linewidth=0.4)


def _values(cells, split: str, problems: list[str], stages: list[str]) -> list[tuple[tuple[str, str], float]]:
    """Return ((problem, stage), value) of the cells of a split that were assessed."""
    every = [((p, stage), cells[(split, p)].get(stage)) for p in problems for stage in stages]
    return [(key, value) for key, value in every if value is not None]


def _stage_labels(stages: Iterable[str], narrow: bool) -> list[str]:
    """Return the stages' names, on several lines in a narrow figure."""
    return [textwrap.fill(stage_name(stage), 13) if narrow else stage_name(stage) for stage in stages]


def _short(text: str, limit: int = 22) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
