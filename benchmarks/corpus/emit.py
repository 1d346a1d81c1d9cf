"""Write the corpus as a manifest for the evaluator.

    python -m benchmarks.corpus.emit KERNELBENCH.parquet FOLDER [pattern ...]
    cudal1 evaluate --manifest FOLDER/manifest.jsonl --out FOLDER/verdicts.jsonl --device cuda

FOLDER receives problems at scaled sizes, candidates, and `manifest.jsonl`, whose ids are the candidates' keys.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.common.command_line import run_command
from benchmarks.corpus.sources import all_sources
from cudal1_ray.problems import ProblemsConfig, load_problems


def emit(table: Path, folder: Path, patterns: Sequence[str] = (), sizes: str = "scaled") -> int:
    """Write the manifest, rows of one problem together, and return how many rows it has."""
    sources = list(all_sources(patterns))
    levels = sorted({source.level for source in sources})
    config = ProblemsConfig(source="parquet", path=str(table), levels=levels, split="train", sizes=sizes)
    problems = {problem.problem_id: problem.source for problem in load_problems(config)}
    sources.sort(key=lambda source: source.problem_id)
    return write_manifest(folder, ((s.key, s.problem_id, problems[s.problem_id], s.draft.code) for s in sources))


def write_manifest(folder: Path, rows: Iterable[tuple[str, str, str, str]]) -> int:
    """Write problems, candidates and their manifest, and return how many rows it has.

    Args:
        rows: each a candidate's id, its problem's id, the problem's text and the candidate's.
    """
    for name in ("problems", "candidates"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = []
    for key, problem_id, source, code in rows:
        problem, candidate = f"problems/{problem_id}.py", f"candidates/{key}.py"
        (folder / problem).write_text(source, encoding="utf-8")
        (folder / candidate).write_text(code, encoding="utf-8")
        lines.append(json.dumps({"id": key, "problem": problem, "candidate": candidate}) + "\n")
    (folder / "manifest.jsonl").write_text("".join(lines), encoding="utf-8")
    return len(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path, help="KernelBench's Parquet file")
    parser.add_argument("folder", type=Path)
    parser.add_argument("patterns", nargs="*", help="emit only candidates whose key matches one of these")
    arguments = parser.parse_args()
    print(f"{emit(arguments.table, arguments.folder, arguments.patterns)} candidates")


if __name__ == "__main__":
    run_command(main)
