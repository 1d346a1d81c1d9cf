"""The walls around contestants, and what the kernel says about the processes behind them."""

from .walls import LEVELS, UNCONFINED

__all__ = ["LEVELS", "UNCONFINED"]
