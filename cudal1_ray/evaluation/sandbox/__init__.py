"""The walls around contestants, and what the kernel says about the processes behind them."""

from cudal1_ray.evaluation.sandbox.walls import LEVELS, UNCONFINED

__all__ = ["LEVELS", "UNCONFINED"]
