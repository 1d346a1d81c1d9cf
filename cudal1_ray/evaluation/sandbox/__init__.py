"""The walls around contestants, and the kernel's records of the processes behind them."""
