"""Join candidates and verdicts into the corpus that the package ships.

    python -m benchmarks.corpus.collect VERDICTS.jsonl ... [--torch 2.11.0] [--commit COMMIT]
    python -m benchmarks.corpus.collect --add VERDICTS.jsonl ...

Rows are the accepted candidates with an own kernel, at the sizes they were evaluated in. Rows of the table that is
there stay where no verdict is given for their candidate. A candidate whose code is no longer the evaluated one is left
out, and counted. With `--add` all rows stay, and their column `speedups` takes in what other devices measured: each
file holds the verdicts of one run, as `cudal1 evaluate --out` writes them or as the `verdicts.jsonl` of a training run,
at the sizes of the table.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from benchmarks.common.command_line import run_command
from benchmarks.corpus.sources import all_sources
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.verdict import candidate_hash
from cudal1_ray.files import read_json_lines
from cudal1_ray.problems.kernelbench import kernelbench_id

OUT = Path("cudal1_ray/problems/corpus/kernelbench_kernels.parquet")
# Differences between measurements of one candidate, as shares of the smaller, for which the agreement is printed.
AGREEMENT = (0.02, 0.03, 0.05)


def collect(
    verdicts: Sequence[Path], sizes: str, torch: str, commit: str, before: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[dict[str, Any]], Counter]:
    """Return the table's rows, in the order of their keys, and what became of every candidate.

    Args:
        before: rows of the table that is there; those without a new verdict stay if their code is still the source's.
    """
    earlier = {row["key"]: dict(row) for row in before}
    by_key = {str(row["id"]): row for file in verdicts for row in read_json_lines(file)}
    rows, outcomes = [], Counter()
    for source in all_sources():
        verdict = by_key.get(source.key)
        if verdict is None and source.key in earlier and earlier[source.key]["code"] == source.draft.code:
            outcomes["evaluated before"] += 1
            rows.append(earlier[source.key])
        elif verdict is None:
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


def measured_by_device(rows: Sequence[Mapping[str, Any]], files: Sequence[Path]) -> dict[str, dict[str, list[float]]]:
    """Return what each file measured of the rows' candidates, by device and key; 0.0 where a file rejects one.

    A candidate is known by its problem and the hash of its code: some problems share a code.

    Raises:
        UserError: naming a file that has no verdict of these candidates.
    """
    keys = {(kernelbench_id(r["level"], r["problem_id"]), candidate_hash(r["code"])): r["key"] for r in rows}
    measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for file in files:
        latest: dict[tuple[str, str], float] = {}
        for row in read_json_lines(file):
            verdict = row["verdict"] if isinstance(row["verdict"], dict) else row
            key = keys.get((verdict["problem_id"], verdict["candidate_hash"]))
            if key and verdict.get("hardware"):
                latest[verdict["hardware"], key] = float(verdict["credited_speedup"])
        if not latest:
            raise UserError(f"{file}: no verdict of a candidate of the table; give the verdicts of one run on a device")
        for (device, key), speedup in latest.items():
            measured[device][key].append(speedup)
    return measured


def merged_speedups(
    rows: Sequence[Mapping[str, Any]], measured: Mapping[str, Mapping[str, Sequence[float]]]
) -> list[dict[str, float]]:
    """Return the speedups of each row by device: the geometric mean of a device's measurements, none where one of them
    rejected the candidate. Devices that measured nothing now keep what they had, and the row's own its `speedup`.
    """
    merged = []
    for row in rows:
        speedups = dict(row.get("speedups") or ())
        for device, by_key in measured.items():
            if values := by_key.get(row["key"]):
                speedups[device] = round(statistics.geometric_mean(values), 6) if all(values) else 0.0
        speedups[row["hardware"]] = row["speedup"]
        merged.append({device: speedup for device, speedup in sorted(speedups.items()) if speedup > 0})
    return merged


def comparison(rows: Sequence[Mapping[str, Any]], device: str, by_key: Mapping[str, Sequence[float]]) -> list[str]:
    """Return how many candidates a device accepts, how far its measurements agree, and what they are to the rows'."""
    accepted = {key: values for key, values in by_key.items() if all(values)}
    lines = [f"{device}: every measurement accepts {len(accepted)} of {len(by_key)} candidates"]
    if spreads := [max(values) / min(values) - 1 for values in accepted.values() if len(values) > 1]:
        shares = (f"{sum(s <= limit for s in spreads) / len(spreads):.1%} within {limit:.0%}" for limit in AGREEMENT)
        lines.append(f"  of {len(spreads)} measured again {', '.join(shares)}; at most {max(spreads):.0%} apart")
    recorded = {row["key"]: row["speedup"] for row in rows if row["hardware"] != device}
    if ratios := [statistics.geometric_mean(accepted[key]) / recorded[key] for key in accepted if key in recorded]:
        near = sum(1 / 1.05 <= ratio <= 1.05 for ratio in ratios) / len(ratios)
        lines.append(f"  ratio to the recorded speedup: median {statistics.median(ratios):.3f}, {near:.1%} within 5%")
    return lines


def write(table: pyarrow.Table, speedups: Sequence[Mapping[str, float]], out: Path) -> None:
    """Write the table with these speedups by device; its other columns stay as they are."""
    kind = pyarrow.map_(pyarrow.string(), pyarrow.float64())
    column = pyarrow.array([list(of_row.items()) for of_row in speedups], kind)
    others = table.drop_columns([name for name in table.column_names if name == "speedups"])
    pyarrow.parquet.write_table(others.append_column("speedups", column), out, compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("verdicts", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--sizes", default="scaled")
    parser.add_argument("--torch", default="", help="version of PyTorch of the evaluation")
    parser.add_argument("--commit", default="", help="commit of this project of the evaluation")
    parser.add_argument("--add", action="store_true", help="add what other devices measured to the table that is there")
    arguments = parser.parse_args()
    for file in arguments.verdicts:
        if not file.is_file():
            raise UserError(f"{file}: no such file; give verdicts, as `cudal1 evaluate --out` writes them")
    if arguments.add:
        table = pyarrow.parquet.read_table(arguments.out)
        rows = table.to_pylist()
        measured = measured_by_device(rows, arguments.verdicts)
        write(table, merged_speedups(rows, measured), arguments.out)
        print("\n".join(line for device, by_key in measured.items() for line in comparison(rows, device, by_key)))
        return
    before = pyarrow.parquet.read_table(arguments.out).to_pylist() if arguments.out.exists() else []
    rows, outcomes = collect(arguments.verdicts, arguments.sizes, arguments.torch, arguments.commit, before)
    columns = [{name: value for name, value in row.items() if name != "speedups"} for row in rows]
    write(pyarrow.Table.from_pylist(columns), merged_speedups(rows, {}), arguments.out)
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
