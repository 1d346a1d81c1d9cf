"""Sweeps: `cudal1 train -m key=a,b other=1,2` runs every combination on one Ray cluster. `run_sweep` is all of it."""

from __future__ import annotations

__all__ = ["run_sweep"]


def run_sweep(overrides: list[str]) -> int:
    """Runs or continues the sweep that the overrides describe; see `cudal1_ray.training.sweeps.multirun`."""
    from cudal1_ray.training.sweeps.multirun import run_sweep as run  # Ray takes seconds to import

    return run(overrides)
