"""Every figure of the report; one whose input is missing states that instead of failing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudal1_ray.analysis.figure import Plot
from cudal1_ray.analysis.plots_exemplars import buffer_plot, lineage_plot
from cudal1_ray.analysis.plots_outcome import distribution_plot, problems_plot, rejections_plot, stages_plot
from cudal1_ray.analysis.plots_progress import health_plot, progress_plot, utilisation_plot
from cudal1_ray.analysis.run_data import SPLITS, RunData


def all_plots(run: RunData, summary: Mapping[str, Any]) -> dict[str, Plot]:
    """Return {name: Plot} of every figure, in the order in which the report shows them."""
    entries = [(split, splits[split]) for splits in summary["stages"].values() for split in SPLITS if split in splits]
    assessed = sorted({split for split, _ in entries}, key=SPLITS.index)
    solved = [split for split in assessed if any(s == split and entry["success_rate"] > 0 for s, entry in entries)]
    plots = (
        stages_plot(summary),
        progress_plot(run),
        distribution_plot(run, (solved or assessed or ["held_out"])[0]),
        problems_plot(run),
        buffer_plot(run),
        lineage_plot(run),
        rejections_plot(run),
        health_plot(run),
        utilisation_plot(run),
    )
    return {plot.name: plot for plot in plots}
