"""Figures of the exemplar buffer: the best so far, and the line of descent of the best candidate."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudal1_ray.analysis.figure import (
    ACCENT,
    CARD,
    GRID,
    INK,
    MUTED,
    NARROW_WIDTH,
    SOFT,
    WIDTH,
    Plot,
    draw,
    hover_points,
    label_beside,
    speedup_axis,
    spread_labels,
)
from cudal1_ray.analysis.run_data import RunData, number
from cudal1_ray.analysis.tables import format_speedup

_MAX_DEPTH = 5
_MAX_NODES = 40


def buffer_plot(run: RunData) -> Plot:
    """Plot the best speedup found so far for each problem, over the versions of the policy that wrote its exemplars."""
    name, title = "buffer", "The exemplar buffer: best so far"
    caption = "One line for each problem; the five that got furthest are named."
    lines = best_so_far(run.exemplars)
    if not lines:
        return Plot(name, title, caption, omitted="The exemplar buffer holds no accepted candidate yet.")
    last = max(float(x[-1]) for x, _ in lines.values())
    last += 0.03 * max(last, 1.0)  # so that a gain in the last step can be seen
    named = sorted(lines, key=lambda problem: -lines[problem][1][-1])[:5]

    def paint(figure, narrow: bool) -> None:
        axes = figure.subplots()
        for problem, (x, best) in sorted(lines.items(), key=lambda item: item[0] in named):
            chosen = problem in named
            axes.plot(
                np.append(x, last),
                np.append(best, best[-1]),
                drawstyle="steps-post",
                color=ACCENT if chosen else MUTED,
                linewidth=1.7 if chosen else 0.9,
                alpha=0.95 if chosen else 0.45,
            )
            hover_points(axes, x, best, [f"{problem}: {format_speedup(float(b))}×" for b in best])
        every = np.concatenate([best for _, best in lines.values()])
        speedup_axis(axes, float(every.min()), float(every.max()))
        axes.set(xlabel="policy version", title="best speedup so far (log scale)")
        axes.set_xlim(0, last)
        reached = [f"{problem}  {format_speedup(float(lines[problem][1][-1]))}×" for problem in named]
        if narrow:
            axes.set_xlabel("\n".join(["policy version", "", *reached]), ha="left", x=0.0)
            return
        low, high = np.log(axes.get_ylim())
        ends = [float(np.log(lines[problem][1][-1])) for problem in named]
        for text, place in zip(reached, spread_labels(ends, (high - low) * 0.07), strict=True):
            label_beside(axes, text, (last, np.exp(place)), 8, 8.5)

    return draw(name, title, caption, (WIDTH, 3.4), paint, (NARROW_WIDTH, 3.6 + 0.17 * len(named)))


def best_so_far(exemplars: list[dict[str, Any]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return {problem_id: (policy versions, running maximum of speedup)} over the accepted exemplars (speedup above 0).

    Versions count on through the stages, as steps do not; where a row has none, its step stands in.
    """
    points_of: dict[str, list[tuple[float, float]]] = {}
    for row in exemplars:
        speedup = number(row.get("speedup"), 0.0)
        if speedup > 0 and row.get("problem_id"):
            version = number(row.get("policy_version"), number(row.get("step"), 0.0))
            points_of.setdefault(str(row["problem_id"]), []).append((version, speedup))
    lines = {}
    for problem, points in points_of.items():
        points.sort()
        values = np.array(points)
        lines[problem] = (values[:, 0], np.maximum.accumulate(values[:, 1]))
    return lines


def lineage(exemplars: list[dict[str, Any]], start: str | None = None) -> list[tuple[str, int, str | None]]:
    """Return the ancestors of an exemplar (default: the fastest) as (exemplar_id, depth, child), itself at depth 0.

    An exemplar that is reached in several ways appears once, at its least depth; at most five generations are
    followed.
    """
    by_id = {str(row["exemplar_id"]): row for row in exemplars if row.get("exemplar_id")}
    if start is None:
        fastest = max(by_id.values(), key=lambda row: number(row.get("speedup"), 0.0), default=None)
        if fastest is None or number(fastest.get("speedup"), 0.0) <= 0:
            return []
        start = str(fastest["exemplar_id"])
    nodes: list[tuple[str, int, str | None]] = []
    queue: list[tuple[str, int, str | None]] = [(start, 0, None)]
    visited = {start}
    while queue and len(nodes) < _MAX_NODES:
        identity, depth, child = queue.pop(0)
        nodes.append((identity, depth, child))
        parents = by_id.get(identity, {}).get("parent_ids")
        for parent in parents if parents is not None and depth < _MAX_DEPTH else ():
            if str(parent) in by_id and str(parent) not in visited:
                visited.add(str(parent))
                queue.append((str(parent), depth + 1, identity))
    return nodes


def lineage_plot(run: RunData) -> Plot:
    """Plot the fastest exemplar, the exemplars that its prompt showed, those that theirs showed, and so on."""
    name, title = "lineage", "Descent of the fastest candidate"
    caption = "A line joins a candidate to an exemplar that its prompt showed; older generations are to the left."
    nodes = lineage(run.exemplars)
    if len(nodes) < 2:
        missing = (
            "The fastest candidate was written without exemplars." if nodes else "There is no accepted exemplar yet."
        )
        return Plot(name, title, caption, omitted=missing)
    by_id = {str(row["exemplar_id"]): row for row in run.exemplars if row.get("exemplar_id")}
    deepest = max(depth for _, depth, _ in nodes)
    places = _tree_places(nodes)
    tallest = max(y for _, y in places.values()) + 1
    problem = by_id[nodes[0][0]].get("problem_id", "")

    def paint(figure, narrow: bool) -> None:
        axes = figure.subplots()
        for identity, _, child in nodes:
            if child is not None:
                (x0, y0), (x1, y1) = places[identity], places[child]
                middle = (x0 + x1) / 2
                axes.plot([x0, middle, middle, x1], [y0, y0, y1, y1], color=GRID, linewidth=1.4, zorder=1)
        for identity, depth, _ in nodes:
            x, y = places[identity]
            row = by_id[identity]
            speedup = number(row.get("speedup"), 0.0)
            fill = ACCENT if depth == 0 else SOFT if speedup > 0 else CARD
            axes.plot(x, y, "o", markersize=9 if depth == 0 else 7, color=fill, markeredgecolor=ACCENT, zorder=3)
            label = f"{format_speedup(speedup)}×" if speedup > 0 else "failed"
            axes.annotate(
                label,
                (x, y),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
                color=INK,
                fontweight="bold" if depth == 0 else "normal",
            )
            axes.annotate(
                f"step {number(row.get('step'), 0.0):g}",
                (x, y),
                xytext=(0, -15),
                textcoords="offset points",
                ha="center",
                fontsize=7.5,
                color=MUTED,
            )
        axes.set(xlim=(-deepest - 0.4, 0.4), ylim=(tallest - 0.4, -0.6), title=str(problem))
        axes.axis("off")

    tall = 0.62 * tallest + 0.6
    return draw(name, title, caption, (min(WIDTH, 1.7 * (deepest + 1)), tall), paint)


def _tree_places(nodes: list[tuple[str, int, str | None]]) -> dict[str, tuple[float, float]]:
    """Return (x, y) of each node: x is minus the depth, a leaf takes a line, others the middle of their parents."""
    children: dict[str | None, list[str]] = {}
    depth_of = {}
    for identity, depth, child in nodes:
        children.setdefault(child, []).append(identity)
        depth_of[identity] = depth
    places: dict[str, tuple[float, float]] = {}
    next_line = 0.0

    def place(identity: str) -> float:
        nonlocal next_line
        below = [place(parent) for parent in children.get(identity, [])]
        if below:
            y = sum(below) / len(below)
        else:
            y, next_line = next_line, next_line + 1.0
        places[identity] = (-float(depth_of[identity]), y)
        return y

    place(nodes[0][0])
    return places
