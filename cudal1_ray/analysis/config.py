"""Settings of the analysis: how intervals are computed and how much the report shows."""

from __future__ import annotations

from dataclasses import dataclass

from cudal1_ray.analysis.statistics import FAILURE_IN_GEOMEAN


@dataclass
class AnalysisConfig:
    """How a run is summarised and reported. None of it changes a run, only its report."""

    bootstrap_draws: int = 2000
    """Bootstrap resamples behind every interval."""

    bootstrap_seed: int = 0
    """Seed of the resampling, so that the same run always gives the same intervals."""

    confidence: float = 0.95
    """Coverage of the intervals, between 0 and 1."""

    geomean_floor: float = FAILURE_IN_GEOMEAN
    """What a failure counts as in a geometric mean; slower accepted candidates count as this too."""

    faster_threshold: float = 1.01
    """Speedup above which a candidate counts as faster (> 1.01x in the paper's table)."""

    best_candidates: int = 4
    """Best candidates shown in the report, at most one for each problem."""

    samples: int = 9
    """Single completions shown in the report: the latest of each frequent reason of rejection, and accepted ones."""

    sample_characters: int = 6000
    """Characters of a prompt and of a completion shown in the report; `cudal1 samples` shows all of them."""

    logged_draws: int = 12
    """Exemplar draws shown in the report, the latest first."""

    smoothing_steps: int = 7
    """Window, in steps, of the smoothed line in figures over steps (the raw points are drawn as well)."""
