"""Join candidates and verdicts into the corpus that the package ships.

    python -m benchmarks.corpus.collect VERDICTS.jsonl ... [--torch 2.11.0] [--commit COMMIT]

Rows are the accepted candidates with an own kernel, at the sizes they were evaluated in. A candidate whose code is no
longer the evaluated one is left out, and counted.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.parquet

from benchmarks.common.command_line import run_command
from benchmarks.corpus.sources import all_sources
from cudal1_ray.evaluation.verdict import candidate_hash
from cudal1_ray.files import read_json_lines

OUT = Path("cudal1_ray/problems/corpus/kernelbench_kernels.parquet")


def collect(verdicts: list[Path], sizes: str, torch: str, commit: str) -> tuple[list[dict], Counter]:
    """Return the table's rows, in the order of their keys, and what became of every candidate."""
    by_key = {str(row["id"]): row for file in verdicts for row in read_json_lines(file)}
    rows, outcomes = [], Counter()
    for source in all_sources():
        verdict = by_key.get(source.key)
        if verdict is None:
            outcomes["not evaluated"] += 1
        elif verdict["candidate_hash"] != candidate_hash(source.draft.code):
            outcomes["changed since its evaluation"] += 1
        elif verdict["verdict"] != "accepted":
            outcomes[f"rejected: {', '.join(verdict.get('reasons') or ['unknown'])}"] += 1
        elif "own_kernel" in verdict and not verdict["own_kernel"]:
            outcomes["accepted without an own kernel"] += 1
        else:
            outcomes["accepted"] += 1
            rows.append(_row(source, verdict, sizes, torch, commit))
    return sorted(rows, key=lambda row: row["key"]), outcomes


def _row(source, verdict: dict, sizes: str, torch: str, commit: str) -> dict:
    draft = source.draft
    return {
        "key": source.key,
        "level": source.level,
        "problem_id": draft.problem,
        "sizes": sizes,
        "code": draft.code,
        "language": draft.language,
        "techniques": list(draft.techniques),
        "analysis": draft.analysis,
        "design": draft.design,
        "status": "accepted",
        "speedup": float(verdict["speedup"]),
        "speedup_low": float(verdict["speedup_low"]),
        "speedup_high": float(verdict["speedup_high"]),
        "credited_speedup": float(verdict["credited_speedup"]),
        "runtime_ms": float(verdict["runtime_ms"]),
        "own_kernel": bool(verdict.get("own_kernel", True)),
        "own_kernel_share": float(verdict.get("own_kernel_share", 0.0)),
        "hardware": verdict.get("hardware", ""),
        "torch": torch,
        "evaluated_at": commit,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("verdicts", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--sizes", default="scaled")
    parser.add_argument("--torch", default="", help="version of PyTorch of the evaluation")
    parser.add_argument("--commit", default="", help="commit of this project of the evaluation")
    arguments = parser.parse_args()
    rows, outcomes = collect(arguments.verdicts, arguments.sizes, arguments.torch, arguments.commit)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), arguments.out, compression="zstd")
    problems = {(row["level"], row["problem_id"]) for row in rows}
    print(f"{len(rows)} candidates of {len(problems)} problems in {arguments.out}")
    for outcome, count in outcomes.most_common():
        print(f"  {count:4d} {outcome}")
    if rows:
        speedups = [row["speedup"] for row in rows]
        best = [max(r["speedup"] for r in rows if (r["level"], r["problem_id"]) == problem) for problem in problems]
        fast = sum(speedup > 1.3 for speedup in best)
        print(f"speedup: median {statistics.median(speedups):.2f}; best above 1.3x on {fast} of {len(best)} problems")


if __name__ == "__main__":
    run_command(main)
