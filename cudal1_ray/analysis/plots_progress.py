"""Figures over steps: speedup and success, the learner's health, and how busy each role is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudal1_ray.analysis.figure import (
    ACCENT,
    GRID,
    INK,
    INKS,
    MUTED,
    NARROW_WIDTH,
    WIDTH,
    Plot,
    draw,
    hover_points,
    label_beside,
    speedup_axis,
    stage_ink,
)
from cudal1_ray.analysis.run_data import RunData, number
from cudal1_ray.analysis.tables import format_share, format_speedup, stage_name
from cudal1_ray.wording import counted

# Window, in steps, of the smoothed line; the raw points are drawn as well.
SMOOTHING_STEPS = 7
# (name, metrics field in seconds, section of `cluster` whose members add up)
ROLES = (
    ("rollout", "busy_rollout", "rollout"),
    ("evaluation", "busy_evaluation", "evaluator"),
    ("learner", "busy_learner", ""),
    ("weight sync", "busy_sync", ""),
)
_HEALTH = (
    ("reward_mean", "reward, mean"),
    ("reward_std", "reward, spread within a step"),
    ("informative_groups", "groups with a signal"),
    ("completion_tokens_mean", "tokens of a completion, mean"),
    ("completion_tokens_max", "tokens of a completion, longest"),
    ("truncated_share", "completions cut at the limit"),
    ("loss", "loss"),
    ("grad_norm", "gradient norm"),
    ("kl", "KL to the reference policy"),
    ("entropy", "entropy"),
    ("clip_fraction", "share of ratios clipped"),
    ("drift_mean_abs", "engine/learner drift, |Δ log p|"),
    ("off_policy_mean_abs", "policy since sampling, |Δ log p|"),
    ("staleness_mean", "age of completions, versions"),
    ("tokens_per_s", "tokens per second"),
    ("evaluations", "evaluations"),
)


Series = tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]  # x, values and rows


@dataclass(frozen=True)
class Timeline:
    """Metrics rows on one axis of steps: `x` (R,) counts on through the stages; bands: (stage, from, to)."""

    rows: tuple[dict[str, Any], ...]
    x: np.ndarray
    bands: tuple[tuple[str, float, float], ...]

    def series(self, field: str, above: float = -np.inf) -> Series:
        """Return the rows in which `field` is a finite number larger than `above`."""
        return _series(
            (x, value, row)
            for x, row in zip(self.x, self.rows, strict=True)
            if (value := number(row.get(field))) is not None and value > above
        )


def _series(points: Iterable[tuple[float, float, dict[str, Any]]]) -> Series:
    points = list(points)
    return np.array([x for x, *_ in points]), np.array([value for _, value, _ in points]), [row for *_, row in points]


def timeline(run: RunData) -> Timeline:
    """Order the metrics rows that have a step: by stage as first seen, then by step."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for row in run.metrics:
        if number(row.get("step")) is not None:
            stages.setdefault(str(row.get("stage", "")), []).append(row)
    rows: list[dict[str, Any]] = []
    xs: list[float] = []
    bands, offset = [], 0.0
    for stage, members in stages.items():
        members.sort(key=lambda row: row["step"])
        first = float(members[0]["step"])
        places = [offset + float(row["step"]) - first for row in members]
        rows, xs = rows + members, xs + places
        bands.append((stage, offset, places[-1]))
        offset = places[-1] + 1.0
    return Timeline(tuple(rows), np.array(xs), tuple(bands))


def smooth(values: np.ndarray) -> np.ndarray:
    """Return the centred moving mean of (R,) values, the window shrinking at both ends."""
    half = SMOOTHING_STEPS // 2
    return np.array([values[max(0, i - half) : i + half + 1].mean() for i in range(len(values))])


def end_of_line(values: np.ndarray, rows: Sequence[Mapping[str, Any]]) -> float:
    """Return where the line of the last row's stage ends; other stages have lines of their own."""
    return float(smooth(values[[row.get("stage") == rows[-1].get("stage") for row in rows]])[-1])


def progress_plot(run: RunData) -> Plot:
    """Plot geometric mean and best speedup, and success rate, over the steps of all stages."""
    name, title = "progress", "Speedup and success over the run"
    caption = "A point is one step's batch of candidates, the line a moving mean, the dashed line the best so far."
    line = timeline(run)
    key, label = (
        ("geomean_speedup", "geometric mean")
        if len(line.series("geomean_speedup", above=0.0)[0])
        else ("mean_speedup", "mean")
    )
    speed_x, speed, speed_rows = line.series(key, above=0.0)  # a logarithmic axis has no zero
    best_x, best, _ = line.series("best_speedup", above=0.0)
    success_x, success, success_rows = line.series("success_rate")
    if not len(speed_x) and not len(success_x):
        return Plot(name, title, caption, omitted="No step of this run has reported a speedup or a success rate yet.")

    def paint(figure, narrow: bool) -> None:
        figure.get_layout_engine().set(hspace=0.1)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        ends: list[str] = []
        if len(speed_x) or len(best_x):
            _points_and_line(top, speed_x, speed, speed_rows)
            speedups = np.concatenate([speed, np.maximum.accumulate(best) if len(best) else best])
            if len(best):
                top.plot(
                    best_x,
                    np.maximum.accumulate(best),
                    color=MUTED,
                    linewidth=1.3,
                    linestyle=(0, (4, 2)),
                    drawstyle="steps-post",
                )
                ends.append(f"best {format_speedup(best.max())}×")
                if not narrow:
                    label_beside(top, ends[-1], (best_x[-1], best.max()), 6, 8.5, MUTED)
            if len(speed):
                end = end_of_line(speed, speed_rows)
                ends.append(f"{label} {format_speedup(end)}×")
                if not narrow:
                    label_beside(top, ends[-1], (speed_x[-1], end), 6, 8.5)
            pairs = zip(speed_rows, speed, strict=True)
            texts = [f"{_place(row)}: {label} {format_speedup(value)}×" for row, value in pairs]
            hover_points(top, speed_x, speed, texts)
            speedup_axis(top, float(speedups.min()), float(speedups.max()) * 1.25)  # room for the stages' names
        top.set_title("\n".join(["speedup (log scale)", ", ".join(ends)]) if narrow and ends else "speedup (log scale)")
        if len(success):
            _points_and_line(bottom, success_x, success, success_rows)
            share = end_of_line(success, success_rows)
            label_text = f"success {format_share(share)}"
            if not narrow:
                label_beside(bottom, label_text, (success_x[-1], share), 6, 8.5)
            pairs = zip(success_rows, success, strict=True)
            texts = [f"{_place(row)}: {format_share(value)} correct" for row, value in pairs]
            hover_points(bottom, success_x, success, texts)
            bottom.set_title(f"share of candidates that are correct\n{label_text}" if narrow else "")
        if not narrow or not len(success):
            bottom.set_title("share of candidates that are correct")
        bottom.set(ylim=(-0.03, 1.03), xlabel="step")
        bottom.set_yticks([0, 0.5, 1], labels=["0%", "50%", "100%"])
        _stage_bands(top, line, named=True, narrow=narrow)
        _stage_bands(bottom, line, named=False, narrow=narrow)
        bottom.set_xlim(-0.5, float(line.x.max()) + 0.5)

    return draw(name, title, caption, (WIDTH, 4.9), paint)


def health_plot(run: RunData) -> Plot:
    """Plot small panels of the learner's own quantities, those that the run reports."""
    name, title = "health", "The learner's health"
    caption = "Steps in which a quantity was not reported are left out; the last value is written above each panel."
    line = timeline(run)
    caption += drift_text(run, line)
    panels = [panel for field, label in _HEALTH for panel in _panels(line, field, label)]
    if not panels:
        return Plot(name, title, caption, omitted="The learner has reported nothing yet.")

    def paint(figure, narrow: bool) -> None:
        grid = figure.subplots(*_grid(len(panels), narrow), squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (label, x, values, rows) in zip(grid.flat, panels, strict=False):
            _points_and_line(axes, x, values, rows, small=True)
            hover_points(axes, x, values, [f"{_place(r)}: {_plain(v)}" for r, v in zip(rows, values, strict=True)])
            axes.set_title(f"{label}\n" if narrow else label, fontsize=8.5)
            axes.tick_params(labelsize=8)
            axes.locator_params(axis="y", nbins=3)
            axes.locator_params(axis="x", nbins=4, integer=True)
            axes.set_title(_plain(values[-1]), fontsize=8.5, loc="right", color=MUTED)
            if np.ptp(values) == 0:
                axes.set_yticks([values[0]])

    wide, narrow = (1.75 * _grid(len(panels), kind)[0] + 0.2 for kind in (False, True))
    return draw(name, title, caption, (WIDTH, wide), paint, (NARROW_WIDTH, narrow))


def _grid(panels: int, narrow: bool) -> tuple[int, int]:
    """Return how many lines and columns small panels make."""
    columns = min(2 if narrow else 3, panels)
    return -(-panels // columns), columns


def _panels(line: Timeline, field: str, label: str) -> list[tuple[str, *Series]]:
    """Return the label and the series of a quantity, of supervised fine-tuning apart where other stages have it too."""
    points = list(zip(*line.series(field), strict=True))
    supervised = [point for point in points if point[2].get("stage") == "sft"]
    others = [point for point in points if point[2].get("stage") != "sft"]
    parts = [(f"{label}, supervised", supervised), (label, others)] if supervised and others else [(label, points)]
    return [(name, *_series(part)) for name, part in parts if part]


def drift_text(run: RunData, line: Timeline) -> str:
    """State in how many steps engine and learner disagreed by more than their band; empty if never measured."""
    _, alarms, _ = line.series("drift_alarm")
    if not len(alarms):
        return ""
    rollout = run.config.get("rollout")
    band = number(rollout.get("drift_band")) if isinstance(rollout, dict) else None
    width = "" if band is None else f" of {band:g} nats per token"
    where = "in none" if not alarms.any() else f"ALARM: in {int(alarms.sum())}"
    return f" Engine and learner left their band{width} {where} of {counted(len(alarms), 'step')}."


def role_shares(run: RunData) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return {role: (x, share of the step's wall time it was busy)} for the roles that the metrics report."""
    line = timeline(run)
    shares = {}
    for role, field, cluster_role in ROLES:
        members = _members(run, cluster_role)
        points = [
            (x, min(1.0, busy / (step * members)))
            for x, busy, row in zip(*line.series(field), strict=True)
            if (step := number(row.get("step_s"), 0.0)) > 0
        ]
        if points:
            shares[role] = (np.array([x for x, _ in points]), np.array([share for _, share in points]))
    return shares


def _members(run: RunData, cluster_role: str) -> int:
    """Return how many members of a role work at once (`cluster.<role>.count`): their busy seconds are added up."""
    cluster = run.config.get("cluster")
    role = cluster.get(cluster_role) if isinstance(cluster, dict) else None
    count = number(role.get("count")) if isinstance(role, dict) else None
    return max(1, int(count)) if count else 1


def utilisation_plot(run: RunData) -> Plot:
    """Plot the share of every step's wall time in which each role was busy; what is not filled is idle."""
    name, title = "utilisation", "How busy each role is"
    caption = "Filled: the share of a step's wall time in which the role worked. Empty: idle. Roles may overlap."
    shares = role_shares(run)
    if not shares:
        return Plot(name, title, caption, omitted="No step of this run has reported how long its roles were busy.")

    first = min(float(x[0]) for x, _ in shares.values()) - 0.5
    last = max(float(x[-1]) for x, _ in shares.values()) + 0.5

    def paint(figure, narrow: bool) -> None:
        rows = figure.subplots(len(shares), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (role, (x, share)) in zip(rows, shares.items(), strict=True):
            edges = np.append(x - 0.5, x[-1] + 0.5)
            axes.fill_between(edges, 0, 1, color=INKS["soft"], linewidth=0, step="post")
            axes.fill_between(edges, 0, np.append(share, share[-1]), color=ACCENT, linewidth=0, step="post", alpha=0.85)
            axes.set(ylim=(0, 1), xlim=(first, last))
            axes.set_yticks([])
            axes.grid(False)
            axes.spines["bottom"].set_visible(False)
            axes.set_ylabel(role, rotation=0, ha="right", va="center", color=INK, labelpad=8)
            axes.text(1.01, 0.5, f"busy {format_share(float(share.mean()))}", transform=axes.transAxes, va="center")
        rows[-1].set_xlabel("step")

    return draw(name, title, caption, (WIDTH, 0.55 * len(shares) + 0.55), paint)


def _points_and_line(axes, x, values, rows: Sequence[Mapping[str, Any]], small: bool = False) -> None:
    """Draw raw points in their stage's colour, and the moving mean of each stage through them."""
    stages = [str(row.get("stage", "")) for row in rows]
    for stage in dict.fromkeys(stages):
        mask = np.array([s == stage for s in stages])
        axes.plot(
            x[mask],
            values[mask],
            "o",
            color=stage_ink(stage),
            markersize=2.2 if small else 3.2,
            alpha=0.4,
            markeredgewidth=0,
        )
        axes.plot(x[mask], smooth(values[mask]), color=stage_ink(stage), linewidth=1.5 if small else 2.0)


def _place(row: Mapping[str, Any]) -> str:
    """Return stage and step of a metrics row."""
    return f"{stage_name(str(row.get('stage', '')))}, step {row.get('step')}"


def _plain(value: float) -> str:
    """Return a value with three significant figures and no exponent where one can be avoided."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _stage_bands(axes, line: Timeline, named: bool, narrow: bool) -> None:
    """Draw a thin rule between stages and, on the upper panel, their names, on several lines where needed."""
    width, taken = float(line.x.max()) + 1.0, [-np.inf] * (3 if narrow else 2)
    letter = width * (0.03 if narrow else 0.0135)
    for stage, first, _ in line.bands:
        if first > 0:
            axes.axvline(first - 0.5, color=GRID, linewidth=1.0, zorder=0)
        if named:
            level = next((place for place, end in enumerate(taken) if first >= end), len(taken) - 1)
            taken[level] = first + letter * len(stage_name(stage))
            axes.annotate(
                stage_name(stage),
                (first - 0.3, 1),
                xycoords=("data", "axes fraction"),
                xytext=(2, -2 - 12 * level),
                textcoords="offset points",
                va="top",
                color=stage_ink(stage),
                fontsize=8.5,
            )
