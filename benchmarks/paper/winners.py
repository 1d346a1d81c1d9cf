"""The kernels that the runs of a table found, as a data set, and measured again.

    python -m benchmarks.paper.winners export --runs runs/table --out benchmarks/results/arms/winners-h100.parquet
    python -m benchmarks.paper.winners measure benchmarks/results/arms/winners-h100.parquet --device cuda \
        --against eager compile problems=kernelbench_parquet problems.path=FILE.parquet
    python -m benchmarks.paper.winners measure benchmarks/results/arms/winners-h100.parquet --device cuda \
        --sizes paper --out benchmarks/results/arms/winners-h100-paper.parquet problems...    or on another device
    python -m benchmarks.paper.winners cases benchmarks/results/arms/winners-h100.parquet --out cases.md problems...

`export` takes earlier data sets too, so that a problem's winner is the best of several tables.
A winner is the candidate of a problem whose speedup has the highest lower end of its 95% interval, of all that a policy
wrote in stage 3. A copy of an exemplar, a kernel of the corpus that stage 1 was given, under other names too, and the
reference's own operators are none. The rules that a run was trained under hold for its winners, also when they are
measured again: where they let a candidate do without a kernel of its own, a winner may. The problems themselves are not
in the data set: their texts belong to KernelBench. `measure` keeps its verdicts in a folder beside the data set, from
which the same command goes on where it was interrupted; without that folder it measures all anew. SIGTERM interrupts it
like Ctrl-C: the candidates under way get their verdicts, and the data set is written.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common.command_line import parse_with_settings, run_command
from benchmarks.paper.arms import ARMS
from benchmarks.paper.measured import arm_runs, kernels_of
from benchmarks.paper.records import recorded_rules
from benchmarks.paper.remeasuring import measure, verdict_files, with_verdicts
from benchmarks.paper.travel import opened_tables
from cudal1_ray.analysis.techniques import find_techniques
from cudal1_ray.config import load_config, read_settings
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import exemplar_id
from cudal1_ray.files import read_json_lines, replacing, write_atomically
from cudal1_ray.problems import CorpusEntry, load_problems
from cudal1_ray.problems.corpus_sources import KERNELBENCH_SIZES
from cudal1_ray.source.renaming import same_except_names

SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sizes", pa.string()),
        ("code", pa.string()),
        ("speedup", pa.float64()),
        ("speedup_low", pa.float64()),
        ("speedup_high", pa.float64()),
        ("device", pa.string()),
        ("baselines", pa.map_(pa.string(), pa.float64())),
        ("baselines_low", pa.map_(pa.string(), pa.float64())),
        ("arm", pa.string()),
        ("seed", pa.int64()),
        ("policy_version", pa.int64()),
        ("techniques", pa.list_(pa.string())),
        ("analysis", pa.string()),
        ("design", pa.string()),
        ("rules", pa.map_(pa.string(), pa.string())),
    ]
)


def export(runs: Sequence[Path], arms: list[str]) -> list[dict[str, Any]]:
    """Return the winner of each problem, fastest first.

    Args:
        runs: folders of a table's runs, or of packed ones; data sets of this function.

    Raises:
        UserError: no run of the arms has begun, and no data set has a winner of theirs.
    """
    data_sets = [path for path in runs if path.suffix == ".parquet"]
    candidates = [row for file in data_sets for row in read(file) if row["arm"] in arms]
    with opened_tables([path for path in runs if path not in data_sets]) as folders:
        arms_begun = [run for folder in folders for run in arm_runs(folder) if run.arm in arms]
        if not arms_begun and not candidates:
            raise UserError(f"{', '.join(map(str, runs))}: none of {', '.join(arms)} has begun there")
        for run in arms_begun:
            rows = _candidates(run.folder, ARMS[run.arm].stage)
            candidates += (row | {"arm": run.arm, "seed": int(run.seed)} for row in rows)
    return best_of_each_problem(candidates)


def export_run(run: Path) -> list[dict[str, Any]]:
    """Return the winner of each problem in one run of `cudal1 train`, which need be no arm of a table."""
    return best_of_each_problem(row | {"arm": run.name} for row in _candidates(run, "contrastive"))


def best_of_each_problem(candidates: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each problem the candidate with the highest lower end, fastest first."""
    best: dict[str, dict[str, Any]] = {}
    for row in candidates:
        best_yet = best.get(row["problem_id"])
        if best_yet is None or row["speedup_low"] > best_yet["speedup_low"]:
            best[row["problem_id"]] = row
    return sorted(best.values(), key=lambda row: -row["speedup"])


def _candidates(run: Path, stage: str) -> list[dict[str, Any]]:
    """Return what a run's policy wrote itself and was accepted, with an own kernel unless the run's rules need none."""
    rules, settings = recorded_rules(run), read_settings(run, "problems", "sft")
    any_kernel = rules.get("own_kernel") == "any"
    sizes, kernels = settings["problems"]["sizes"], kernels_of(settings["sft"]["corpus"])
    references = {row["problem_id"]: row["source"] for row in read_json_lines(run / "problems.jsonl")}
    devices = {row["key"]: row["verdict"].get("hardware", "") for row in read_json_lines(run / "verdicts.jsonl")}
    rows = []
    for file in sorted((run / "rollouts").glob(f"{stage}-*.parquet")):
        for row in pq.read_table(file).to_pylist():
            if row["status"] != "accepted" or not (row["own_kernel"] or any_kernel):
                continue
            if row["copied"] or row["degenerate"] or "same_operations" in (row.get("flags") or ()):
                continue
            identity = exemplar_id(row["problem_id"], row["code"])
            if not any(same_except_names(row["code"], code) for code in kernels.get(row["problem_id"], ())):
                reference = references.get(row["problem_id"], "")
                techniques = [technique.name for technique in find_techniques(row["code"], reference)]
                extra = {"sizes": sizes, "device": devices.get(identity, ""), "techniques": techniques}
                extra |= {"baselines": [], "baselines_low": []}
                extra["rules"] = list(rules.items())
                rows.append({name: (row | extra).get(name) for name in SCHEMA.names})
    return rows


def read(file: Path) -> list[dict[str, Any]]:
    """Return a data set's rows; what an older one does not have is None.

    Raises:
        UserError: it is none.
    """
    try:
        rows = pq.read_table(file).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{file}: no data set of winners ({error})") from None
    if rows and not {"problem_id", "code", "speedup_low"} <= rows[0].keys():
        raise UserError(f"{file}: no data set of winners, it has {', '.join(rows[0])}")
    return [{name: row.get(name) for name in SCHEMA.names} for row in rows]


def write(rows: list[dict[str, Any]], out: Path) -> None:
    """Write the data set."""
    with replacing(out) as file:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file, compression="zstd")


def summary_rows(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return a line for each baseline: winners measured against it, faster ones, and the median speedup.

    A winner counts as faster by `lower_ends`. The last line is of winners faster than all baselines, among those that
    were measured against another than eager.
    """
    speedups: dict[str, list[tuple[float, float]]] = {}  # with the lower end
    for row in rows:
        lows = lower_ends(row)
        for name, speedup in {"eager": row["speedup"], **dict(row["baselines"] or ())}.items():
            speedups.setdefault(name, []).append((speedup, lows[name]))
    if several := [row for row in rows if row["baselines"]]:
        speedups["each of these"] = [(min(lower_ends(row).values()),) * 2 for row in several]
    return [
        [name, str(len(of)), str(sum(low > 1.0 for _, low in of)), f"{median(speedup for speedup, _ in of):.2f}x"]
        for name, of in speedups.items()
    ]


def lower_ends(row: Mapping[str, Any]) -> dict[str, float]:
    """Return by baseline, eager among them, the lower end of the interval of a winner's speedup over it; the speedup
    itself where an older data set has no interval.
    """
    return {"eager": row["speedup_low"], **dict(row["baselines"] or ()), **dict(row["baselines_low"] or ())}


def against_corpus(rows: list[dict[str, Any]], corpus: Iterable[CorpusEntry]) -> list[list[str]]:
    """Return a further line for `summary_rows`, against the fastest kernel that the corpus has for the problem.

    Only winners count whose problem has kernels of the corpus that their device measured, in the corpus's sizes.
    """
    fastest: dict[tuple[str, str], float] = {}
    for entry in corpus:
        for device, speedup in {entry.hardware: entry.speedup, **entry.speedups}.items():
            place = entry.problem_id, device
            fastest[place] = max(speedup, fastest.get(place, 0.0))
    pairs = [
        (row, fastest[place])
        for row in rows
        if (place := (row["problem_id"], row["device"])) in fastest and row["sizes"] == KERNELBENCH_SIZES
    ]
    if not pairs:
        return []
    sure = sum(row["speedup_low"] > speedup for row, speedup in pairs)
    ratio = median(row["speedup"] / speedup for row, speedup in pairs)
    return [["the corpus's fastest kernel", str(len(pairs)), str(sure), f"{ratio:.2f}x"]]


def beats_all(row: dict[str, Any]) -> bool:
    """Return whether a winner was measured against other baselines than eager and is faster than each."""
    return bool(row["baselines"]) and min(lower_ends(row).values()) > 1.0


def problem_settings(rows: Sequence[Mapping[str, Any]], settings: Sequence[str], sizes: str = "") -> list[str]:
    """Return the settings that load the winners' problems in `sizes`, or in those that the rows have.

    Raises:
        UserError: the settings have other sizes, or the rows have several.
    """
    of_rows = {row["sizes"] for row in rows if row["sizes"]}
    if not sizes and len(of_rows) > 1:
        raise UserError(f"sizes: the winners are of several ({', '.join(sorted(of_rows))}); export them by themselves")
    if not (sizes := sizes or next(iter(of_rows), "")):
        return [*settings]
    chosen = f"problems.sizes={sizes}"
    for setting in settings:
        if setting.startswith("problems.sizes=") and setting != chosen:
            raise UserError(f"{setting}: the winners are measured in sizes {sizes}; give --sizes for others")
    return [*(setting for setting in settings if setting != chosen), chosen]


def cases(rows: list[dict[str, Any]], overrides: list[str], count: int = 3) -> str:
    """Return the winners with the highest lower ends as Markdown: before, after, and why, in the policy's own words.

    The lines that show a technique are found in the code, none in the policy's description of it.
    """
    problems = {problem.problem_id: problem.source for problem in load_problems(load_config(overrides).problems)}
    lines = []
    for row in sorted(rows, key=lambda row: -row["speedup_low"])[:count]:
        reference = problems.get(row["problem_id"], "")
        lines += [
            f"## {row['problem_id']}",
            "",
            f"{row['speedup']:.2f}x ({row['speedup_low']:.2f} to {row['speedup_high']:.2f}) against eager on "
            f"{row['device'] or 'an unnamed device'}, sizes {row['sizes']}; {row['arm']}, seed {row['seed']}, policy "
            f"version {row['policy_version']}.",
            "",
            *(f"- against {name}: {speedup:.2f}x" for name, speedup in row["baselines"] or ()),
            *(
                f"- {technique.name}: `{technique.evidence.strip()}`"
                for technique in find_techniques(row["code"], reference)
            ),
            *_block("Before", "```python", reference),
            *_block("After", "```python", row["code"]),
            *_block("Why, in the policy's words", "", "\n\n".join(filter(None, (row["analysis"], row["design"])))),
        ]
    return "\n".join(lines)


def _block(title: str, fence: str, text: str) -> list[str]:
    """Return lines of Markdown; none without a text."""
    if not text.strip():
        return []
    return ["", f"**{title}**", "", *([fence] if fence else []), text.strip(), *(["```"] if fence else []), ""]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("export")
    make.add_argument(
        "--runs", type=Path, nargs="+", default=[Path("runs/table")], help="folders, packed ones too; data sets"
    )
    make.add_argument(
        "--run", type=Path, action="append", help="one run by itself, instead of a table's; may be repeated"
    )
    make.add_argument("--arms", nargs="+", choices=list(ARMS), default=["bucket", "grpo", "island", "random"])
    make.add_argument("--out", type=Path, required=True)
    again = commands.add_parser("measure")
    again.add_argument("winners", type=Path)
    again.add_argument(
        "--out", type=Path, help="a data set of its own, of another device for example (default: the same)"
    )
    again.add_argument("--against", nargs="+", default=["eager"], metavar="BASELINE", help="see cudal1 evaluate")
    again.add_argument(
        "--lacking",
        action="store_true",
        help="only what has no speedup against a baseline yet; with --sizes all: give what that wrote, without --sizes",
    )
    again.add_argument("--sizes", default="", help="of the problems measured, where they are others than the runs'")
    again.add_argument("--device", default="cpu", help="see cudal1 evaluate (default: cpu)")
    again.add_argument(
        "overrides", nargs="*", metavar="key=value", help="problems.* except sizes, as the runs had them; of evaluate"
    )
    study = commands.add_parser("cases")
    study.add_argument("winners", type=Path)
    study.add_argument("--out", type=Path, required=True)
    study.add_argument("--count", type=int, default=3, help="winners, those with the highest gain (default: 3)")
    study.add_argument("overrides", nargs="*", metavar="key=value", help="problems.*, as the runs had them")
    arguments = parse_with_settings(parser, argv)
    if arguments.command == "export":
        if arguments.run:
            rows = best_of_each_problem(row for run in arguments.run for row in export_run(run))
        else:
            rows = export(arguments.runs, arguments.arms)
        write(rows, arguments.out)
        print(
            f"{arguments.out}: {len(rows)} problems, {sum(row['speedup_low'] > 1.0 for row in rows)} faster than eager"
        )
        return
    rows = read(arguments.winners)
    if arguments.command == "cases":
        settings = problem_settings(rows, arguments.overrides)
        write_atomically(arguments.out, cases(rows, settings, arguments.count))
        print(f"{arguments.out}: {min(arguments.count, len(rows))} of {len(rows)} rows")
        return
    out = arguments.out or arguments.winners
    if arguments.sizes and arguments.out is None:
        raise UserError(f"--sizes {arguments.sizes}: needs --out, as {out} has its own sizes")
    of_problems = [text for text in arguments.overrides if text.startswith(("problems=", "problems."))]
    others = ["--device", arguments.device, *(text for text in arguments.overrides if text not in of_problems)]
    of_problems = problem_settings(rows, of_problems, arguments.sizes)
    folder, lacking = out.with_suffix(".measured"), arguments.lacking and not arguments.sizes
    for _ in measure(rows, arguments.against, folder, of_problems, others, lacking):
        write(with_verdicts(rows, verdict_files(folder), arguments.sizes), out)
    write(kept := with_verdicts(rows, verdict_files(folder), arguments.sizes), out)
    print(f"{out}: {len(kept)} rows, {len(rows) - len(kept)} were left out; verdicts in {folder}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that `measure` writes what it has
    run_command(main)
