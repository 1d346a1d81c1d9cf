"""The walls around contestants, and the kernel's records of the processes behind them."""

from cudal1_ray.evaluation.sandbox.walls import LEVELS, UNCONFINED

__all__ = ["LEVELS", "UNCONFINED"]
