"""The learning curves of a result of `benchmarks.paper.collect`: what arms write as their samples go on."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.common.plot_style import OTHERS, TEXT, plot_style
from benchmarks.paper.arms import ARMS
from cudal1_ray.analysis.figure import label_beside, spread_labels

# Steps that a point is the mean of: a step asks few problems, others than the step before.
WINDOW = 5
_COLOURS = {"bucket": "#c2410c", "grpo": "#1d4ed8", "island": "#0f766e", "random": "#a21caf", "evolution": "#111827"}
_STYLE = plot_style("curves")
_PANELS = (
    ("new", "right with an own kernel, no copy: share of samples"),
    ("geomean", "geometric mean speedup, a failure as 0.1"),
)


def has_curves(result: dict[str, Any]) -> bool:
    """Return whether an arm has at least two steps."""
    return any(len(record["curve"]) > 1 for arm in result["arms"].values() for record in arm["seeds"].values())


def running_mean(points: Sequence[dict[str, float]], name: str) -> list[float]:
    """Return for each step the mean of a figure over the last `WINDOW` steps, each weighted by its samples."""
    sizes = np.diff([0, *(point["samples"] for point in points)])
    means = []
    for end in range(1, len(points) + 1):
        window = range(max(0, end - WINDOW), end)
        means.append(float(np.average([points[i][name] for i in window], weights=sizes[window])))
    return means


def svg(result: dict[str, Any], source: str) -> str:
    """Return the picture: a line for each run, a colour for each arm; `source` is noted in it."""
    with matplotlib.rc_context(_STYLE):
        figure, panels = plt.subplots(1, len(_PANELS), figsize=(10.5, 3.6))
        figure.set_layout_engine("constrained")
        for axes, (name, title) in zip(panels, _PANELS, strict=True):
            axes.set_title(title, loc="left", color=TEXT)
            axes.set_xlabel(f"samples of the stage, mean of {WINDOW} steps")
            ends: dict[str, tuple[float, float]] = {}
            for arm, of in result["arms"].items():
                for record in of["seeds"].values():
                    if len(points := record["curve"]) > 1:
                        means = running_mean(points, name)
                        colour = _COLOURS.get(arm, OTHERS)
                        axes.plot([point["samples"] for point in points], means, color=colour, linewidth=1.6)
                        end = (points[-1]["samples"], means[-1])  # the label is at the longest line of the arm
                        ends[arm] = max(end, ends.get(arm, end))
            axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
            axes.margins(x=0)
            gap = 0.06 * axes.get_ylim()[1]
            heights = spread_labels([height for _, height in ends.values()], gap)
            for (arm, (place, _)), height in zip(ends.items(), heights, strict=True):
                label = ARMS[arm].label.removeprefix("+ ")
                colour = _COLOURS.get(arm, TEXT)
                label_beside(axes, label, (place, height), 4, 8, colour)
        text = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Title": source}
        figure.savefig(text, format="svg", facecolor="white", metadata=metadata)
        plt.close(figure)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
