"""The walls around contestants, and what the kernel says about the processes behind them."""

from .choosing import find_sandbox, sandbox_level
from .walls import LEVELS

__all__ = ["LEVELS", "find_sandbox", "sandbox_level"]
