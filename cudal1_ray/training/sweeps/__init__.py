"""Sweeps: `cudal1 train -m key=a,b other=1,2` runs every combination of values on one Ray cluster."""

from __future__ import annotations

__all__ = ["preview_sweep", "run_sweep"]


def preview_sweep(overrides: list[str]) -> str:
    """Return the configuration of every run of the sweep; see `cudal1_ray.training.sweeps.multirun`."""
    from cudal1_ray.training.sweeps.multirun import preview_sweep as preview  # Ray takes seconds to import

    return preview(overrides)


def run_sweep(overrides: list[str]) -> int:
    """Run or continue the sweep that the overrides describe; see `cudal1_ray.training.sweeps.multirun`."""
    from cudal1_ray.training.sweeps.multirun import run_sweep as run  # Ray takes seconds to import

    return run(overrides)
