"""Training: the three stages, the session they share, and the run's folder. `train(config)` is all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudal1_ray.config import Config

__all__ = ["train"]


def train(config: Config, command: str = "") -> int:
    """Run or continue the run that `config` describes; see `cudal1_ray.training.train`."""
    from cudal1_ray.training.train import train as run  # Ray and torch are imported by runs, not by configurations

    return run(config, command)
