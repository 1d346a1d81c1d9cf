"""The walls around contestants, and what the kernel says about the processes behind them."""

from .walls import LEVELS, sandbox_level

__all__ = ["LEVELS", "sandbox_level"]
