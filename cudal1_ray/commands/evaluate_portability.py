"""`cudal1 evaluate --manifest ... --on A100 --on H100`: the same kernels on several accelerator types, in one table."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from rich.console import Console

from cudal1_ray.analysis.summary import write_report_file
from cudal1_ray.commands.evaluate_manifest import INTERRUPTED, progress, report_skipped
from cudal1_ray.commands.manifest import VerdictFile, read_manifest
from cudal1_ray.commands.portability_table import Portability, markdown_table, portability, rich_table
from cudal1_ray.config import Config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.scrutiny.confirmation import BestSpeedups
from cudal1_ray.wording import counted


def chosen_types(options: Sequence[str]) -> list[str]:
    """Return the accelerator types of `--on`, given several times or with commas, each once and in this order.

    Raises:
        UserError: for a name that no type has.
    """
    names = [name.strip() for text in options for name in text.split(",")]
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UserError(f"--on {name!r}: give an accelerator type as Ray names it, for example A100 or H100")
    return list(dict.fromkeys(names))


def evaluate_on_types(manifest: str, out: str, types: Sequence[str], config: Config, as_json: bool = False) -> int:
    """Evaluate every pair of `manifest` on every type, by evaluators of the Ray cluster that have it, and print the
    table; 0 whatever the verdicts are.

    `out` is a folder: verdicts go to `TYPE.jsonl` there as they come, and what is there is not evaluated again;
    the table is written to `table.md` and `table.json`.

    Raises:
        UserError: for a bad manifest or folder, no cluster, or a type that it lacks; before anything is evaluated.
    """
    folder, console = Path(out), Console(stderr=as_json)
    read = read_manifest(Path(manifest))
    pairs = {pair.identity: pair for pair in read.pairs}
    report_skipped(read.skipped, console)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {out}: is a file; with --on it names a folder, for the verdicts of each type")
    with ExitStack() as stack:
        files: dict[str, VerdictFile] = {}
        for kind in types:
            file = VerdictFile(folder / f"{kind}.jsonl", list(pairs.values()), config.evaluation)
            files[kind] = stack.enter_context(file)
        earlier_rows = [row for file in files.values() for row in file.rows.values()]
        candidates = [(pair.identity, pair.problem, pair.code) for pair in pairs.values()]
        remaining = {
            kind: [candidate for candidate in candidates if candidate[0] not in file.rows]
            for kind, file in files.items()
        }
        try:
            with progress(console, len(pairs) * len(files), earlier_rows) as show:
                if work := {kind: rows for kind, rows in remaining.items() if rows}:
                    from cudal1_ray.actors.evaluator_pools import evaluate_on_types as evaluate  # Ray takes seconds

                    best = {kind: BestSpeedups(file.rows.values()) for kind, file in files.items()}
                    with closing(evaluate(work, config.evaluation, config.cluster, best)) as coming:
                        for kind, identity, verdict in coming:
                            show(files[kind].add(pairs[identity], verdict))
        except KeyboardInterrupt:
            done = sum(len(file.rows) for file in files.values())
            progress_text = f"{out} has {done} of {counted(len(pairs) * len(files), 'verdict')}"
            goes_on = "the same command goes on from there"
            console.print(f"interrupted: {progress_text}; {goes_on}", markup=False, soft_wrap=True)
            return INTERRUPTED
        problem_ids = {identity: pair.problem.problem_id for identity, pair in pairs.items()}
        verdicts = {kind: file.rows for kind, file in files.items()}
        table = portability(problem_ids, verdicts, config.evaluation.device, config.evaluation.against)
    write_table(table, folder)
    if as_json:
        print(json.dumps(table.to_dict()))
    else:
        console.print(rich_table(table))
        console.print(f"table: {folder / 'table.md'}", highlight=False, markup=False, soft_wrap=True)
    return 0


def write_table(table: Portability, folder: Path) -> None:
    """Write table.md for a reader, table.json for a program."""
    write_report_file(folder / "table.json", json.dumps(table.to_dict(), indent=1, allow_nan=False) + "\n")
    write_report_file(folder / "table.md", markdown_table(table))
