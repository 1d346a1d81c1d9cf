"""The picture of the population simulator: best so far by round, every strategy, one panel for each assumption."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

from benchmarks.common.plot_style import OTHERS, TEXT, plot_style
from cudal1_ray.analysis.figure import spread_labels
from cudal1_ray.files import write_atomically

# Those of the paper's ablation, and the greedy one; all others are grey.
_COLOURS = {"bucket": "#c2410c", "island": "#0f766e", "uniform": "#1d4ed8", "none": "#111827", "top_k": "#a21caf"}
_STYLE = plot_style("population")


def save_plot(result: dict[str, Any], path: Path) -> None:
    """Write the picture of a result of `population.py` as SVG."""
    with matplotlib.rc_context(_STYLE):
        figure, panels = plt.subplots(1, len(result["settings"]), figsize=(10.5, 5.0), sharey=True)
        figure.set_layout_engine("constrained")
        curves = [
            summary["best_by_round"] for strategies in result["settings"].values() for summary in strategies.values()
        ]
        low, high = 0.95 * min(map(min, curves)), 1.4 * max(map(max, curves))
        ticks = [tick for tick in (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16) if low <= tick <= high]
        for axes, (rule, strategies) in zip(panels, result["settings"].items(), strict=True):
            axes.set_yscale("log")
            axes.set_title(f"the policy {rule}", loc="left", color=TEXT)
            axes.set(xlabel="round", xlim=(0, result["rounds"] * 1.5), ylim=(low, high))
            for name, strategy in reversed(strategies.items()):
                width = 2.2 if name in _COLOURS else 1.0
                axes.plot(strategy["best_by_round"], color=_COLOURS.get(name, OTHERS), linewidth=width)
            ends = [math.log(strategy["best_by_round"][-1]) for strategy in strategies.values()]
            heights = spread_labels(ends, 0.035 * math.log(high / low))
            for name, end, height in zip(strategies, ends, heights, strict=True):
                axes.annotate(
                    f"{name}  {math.exp(end):.2f}",
                    (result["rounds"] + 0.5, math.exp(height)),
                    color=_COLOURS.get(name, TEXT),
                    fontsize=8,
                    va="center",
                    annotation_clip=False,
                )
            axes.set_xticks(range(0, result["rounds"] + 1, 4))
            axes.set_yticks(ticks, labels=[f"{tick:g}×" for tick in ticks])
            axes.set_yticks([], minor=True)
            axes.annotate(
                f"the best there is: {result['best_there_is']:.2f}×", (0.02, 0.96), xycoords="axes fraction", fontsize=8
            )
        panels[0].set_ylabel("geometric mean speedup, best so far (log scale)")
        text = io.StringIO()
        figure.savefig(text, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
        plt.close(figure)
    write_atomically(path, "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n")
