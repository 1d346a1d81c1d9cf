"""The picture of the population simulator: best so far by round, every strategy, one panel for each assumption."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend must be chosen before pyplot is loaded)

from cudal1_ray.analysis.figure import spread_labels  # noqa: E402
from cudal1_ray.analysis.summary import write_atomically  # noqa: E402

# Those of the paper's ablation, and the greedy one; all others are grey.
_COLOURS = {"bucket": "#c2410c", "island": "#0f766e", "uniform": "#1d4ed8", "none": "#111827", "top_k": "#a21caf"}
_OTHERS, _TEXT = "#9ca3af", "#4b5563"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "population",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _OTHERS,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
}


def save_plot(result: dict[str, Any], path: Path) -> None:
    """Writes the picture of a result of `population.py` as SVG."""
    with matplotlib.rc_context(_STYLE):
        figure, panels = plt.subplots(1, len(result["settings"]), figsize=(10.5, 5.0), sharey=True)
        figure.set_layout_engine("constrained")
        top = result["best_there_is"]
        for axes, (rule, strategies) in zip(panels, result["settings"].items(), strict=True):
            for name, strategy in reversed(strategies.items()):
                width = 2.2 if name in _COLOURS else 1.0
                axes.plot(strategy["best_by_round"], color=_COLOURS.get(name, _OTHERS), linewidth=width)
            ends = [strategy["best_by_round"][-1] for strategy in strategies.values()]
            for name, end, height in zip(strategies, ends, spread_labels(ends, 0.033 * top), strict=True):
                axes.annotate(
                    f"{name}  {end:.2f}",
                    (result["rounds"] + 0.5, height),
                    color=_COLOURS.get(name, _TEXT),
                    fontsize=8,
                    va="center",
                    annotation_clip=False,
                )
            axes.axhline(top, color=_OTHERS, linewidth=0.8, linestyle=":")
            axes.annotate("the best there is", (0, top), xytext=(0, 3), textcoords="offset points", fontsize=8)
            axes.set(title=f"the policy {rule}", xlabel="round", xlim=(0, result["rounds"] * 1.5), ylim=(0, 1.06 * top))
            axes.set_xticks(range(0, result["rounds"] + 1, 4))
        panels[0].set_ylabel("geometric mean speedup, best so far")
        text = io.StringIO()
        figure.savefig(text, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
        plt.close(figure)
    write_atomically(path, "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n")
