"""KernelBench as its authors publish it, where this machine has a copy: it is no part of the repository."""

import os
from pathlib import Path

_CHECKOUT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("CUDAL1_SHARED_DATA", _CHECKOUT.parent / "shared" / "data"))
TABLE = FOLDER / "kernelbench_v0.1.parquet"
