"""Find the scaled sizes of KernelBench's levels 1 to 3, and report how many problems of each level have some.

    python scripts/kernelbench_sizes.py KERNELBENCH.parquet [--out cudal1_ray/problems/sizes/kernelbench_scaled.json]

Needs no GPU and four minutes of one core. The table holds names of constants, values and digests, no text of
KernelBench.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from cudal1_ray.problems.kernelbench import load_parquet
from cudal1_ray.problems.sizes import KERNELBENCH, digest
from cudal1_ray.problems.sizes.scaling import HIGHEST, LOWEST, MIB, scale


def table(path: Path) -> dict:
    """Return the entries of all problems, by id."""
    entries = {}
    for problem in load_parquet(path, (1, 2, 3)):
        scaling = scale(problem.source)
        entries[problem.problem_id] = {
            "sha256": digest(problem.source),
            "values": scaling.values,
            "reason": scaling.reason,
            "fits": scaling.fits,
            "published_mib": round(scaling.published_bytes / MIB, 1),
            "mib": round(scaling.bytes / MIB, 1),
        }
    return {"data": "KernelBench v0.1", "lowest_mib": LOWEST // MIB, "highest_mib": HIGHEST // MIB, "problems": entries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path, help="KernelBench's Parquet file")
    parser.add_argument("--out", type=Path, default=KERNELBENCH)
    arguments = parser.parse_args()
    data = table(arguments.table)
    entries_of = data.pop("problems")
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries_of.items())
    head = json.dumps(data)[:-1]
    arguments.out.write_text(f'{head}, "problems": {{\n{lines}\n}}}}\n', encoding="utf-8")
    for level in "123":
        entries = [entry for key, entry in entries_of.items() if f"-l{level}-" in key]
        reasons = Counter("scaled" if entry["values"] else entry["reason"] for entry in entries)
        print(f"level {level}: {dict(reasons.most_common())}")


if __name__ == "__main__":
    main()
