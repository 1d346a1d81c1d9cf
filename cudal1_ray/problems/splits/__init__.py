"""The committed split of KernelBench's levels 1 to 3 into training and held-out problems.

`kernelbench.json` is made by `scripts/kernelbench_split.py`, which documents how. It holds numbers of problems
only, no text of KernelBench.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from cudal1_ray.problems.kernelbench import kernelbench_id
from cudal1_ray.problems.problem import SPLITS

FILE = Path(__file__).parent / "kernelbench.json"


@cache
def kernelbench_split() -> dict[str, str]:
    """Return problem id -> "train" or "held_out", for each of the 250 problems of KernelBench's levels 1 to 3."""
    levels = json.loads(FILE.read_text(encoding="utf-8"))["levels"]
    return {
        kernelbench_id(int(level), number): side
        for level, sides in levels.items()
        for side in SPLITS
        for number in sides[side]
    }
