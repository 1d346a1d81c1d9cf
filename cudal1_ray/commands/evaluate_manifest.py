"""`cudal1 evaluate --manifest`: verdicts over many pairs, on one device or over a Ray cluster; killed, it goes on."""

from __future__ import annotations

import json
import statistics
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cudal1_ray.commands.manifest import Pair, VerdictFile, read_manifest
from cudal1_ray.config import Config
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.sandbox.walls import UNCONFINED
from cudal1_ray.evaluation.scrutiny.confirmation import BestSpeedups
from cudal1_ray.problems import Problem
from cudal1_ray.wording import counted

# Lines of progress, where there is no terminal.
_LINES = 20
# Exit code of a command that Ctrl-C ended, as shells have it.
INTERRUPTED = 130


def evaluate_manifest(manifest: str, out: str, config: Config, over_ray: bool = False, as_json: bool = False) -> int:
    """Evaluate every pair of `manifest` that has no row in `out` yet, write each verdict there as it comes, and
    print their summary; rows that cannot be evaluated are skipped and listed.

    `over_ray`: on every evaluator of the cluster at `config.cluster.address` instead of this machine's device.

    Returns:
        0 whatever the verdicts are, 130 when it was interrupted.

    Raises:
        UserError: for a bad manifest, verdicts' file, device or cluster; before anything is evaluated.
    """
    console, read = Console(stderr=as_json), read_manifest(Path(manifest))
    with VerdictFile(Path(out), read.pairs, config.evaluation) as verdicts:
        if not evaluate_pairs(read.pairs, verdicts, config, console, over_ray):
            return INTERRUPTED
        counts = summary(verdicts.rows.values()) | {"skipped": len(read.skipped)}
    report_skipped(read.skipped, console)
    if as_json:
        print(json.dumps(counts))
    else:
        console.print(summary_line(counts), highlight=False, soft_wrap=True)
    return 0


def evaluate_pairs(
    pairs: list[Pair], verdicts: VerdictFile, config: Config, console: Console, over_ray: bool = False
) -> bool:
    """Evaluate the pairs that have no verdict yet, with progress; at the end the file is in the order of `pairs`.

    Returns:
        Whether it came to its end; False after an interrupt, with all verdicts so far in the file.
    """
    by_identity = {pair.identity: pair for pair in pairs}
    remaining = [pair for identity, pair in by_identity.items() if identity not in verdicts.rows]
    try:
        with (
            progress(console, len(by_identity), verdicts.rows.values()) as show,
            closing(_verdicts(remaining, config, over_ray, BestSpeedups(verdicts.rows.values()))) as coming,
        ):
            for identity, verdict in coming:
                show(verdicts.add(by_identity[identity], verdict))
    except KeyboardInterrupt:
        progress_text = f"{verdicts.path} has {len(verdicts.rows)} of {counted(len(by_identity), 'verdict')}"
        console.print(
            f"interrupted: {progress_text}; the same command goes on from there", markup=False, soft_wrap=True
        )
        return False
    verdicts.arrange(list(by_identity))
    return True


def report_skipped(skipped: list[str], console: Console) -> None:
    """Print a line for each row or file that could not be evaluated."""
    for line in skipped:
        console.print(f"skipped: {line}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def _verdicts(
    pairs: list[Pair], config: Config, over_ray: bool, best: BestSpeedups
) -> Generator[tuple[str, Verdict], None, None]:
    work = [(pair.identity, pair.problem, pair.code) for pair in pairs]
    if not work:
        return
    if over_ray:
        from cudal1_ray.actors.evaluator_pools import evaluate_on_cluster

        yield from evaluate_on_cluster(work, config.evaluation, config.cluster, best)
    else:
        yield from _on_this_machine(work, config.evaluation, best)


def _on_this_machine(
    work: list[tuple[str, Problem, str]], config: EvaluationConfig, best: BestSpeedups
) -> Iterator[tuple[str, Verdict]]:
    from cudal1_ray.evaluation.pool import EvaluatorPool

    slots = min(config.slots, len(work))  # one without a candidate would start for nothing
    with EvaluatorPool(replace(config, slots=slots)) as pool:
        yield from pool.evaluate_all(work, best)


@contextmanager
def progress(console: Console, total: int, earlier_rows: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    """Display a bar with the counts so far, or a line for every twentieth where there is no terminal; what is given to
    the yielded function is counted.
    """
    counts = {"accepted": 0, "rejected": 0}
    columns = (TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def show(row: Mapping[str, Any]) -> None:
            counts[row["verdict"]] += 1
            text = f"[green]{counts['accepted']} accepted[/] [red]{counts['rejected']} rejected[/]"
            bar.update(task, advance=1, description=text)

        def count_row(row: Mapping[str, Any]) -> None:
            show(row)
            done = sum(counts.values())
            if not console.is_terminal and (done == total or done % max(1, total // _LINES) == 0):
                tally = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
                console.print(f"evaluated {done} of {total}: {tally}", highlight=False, soft_wrap=True)

        for row in earlier_rows:
            show(row)
        yield count_row


def summary(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return counts, and mean, median and geometric mean of the credited speedups of accepted candidates.

    Verdicts on degenerate problems are counted and left out of the means; None where nothing is left. A problem is
    flagged when any of its rows is: a candidate that fell before its problem was opened does not know.
    """
    rows = list(rows)
    degenerate = {row.get("problem_hash") for row in rows if row.get("degenerate")}
    flagged = [row for row in rows if row.get("problem_hash") in degenerate]
    sound = [row for row in rows if row.get("problem_hash") not in degenerate]
    credited = [row["credited_speedup"] for row in sound if row["verdict"] == "accepted"]
    return {
        "rows": len(rows),
        "accepted": sum(row["verdict"] == "accepted" for row in rows),
        "credited": len(credited),
        "mean": statistics.fmean(credited) if credited else None,
        "median": statistics.median(credited) if credited else None,
        "geometric_mean": statistics.geometric_mean(credited) if credited else None,
        "unconfined": sum(row.get("sandbox") in UNCONFINED for row in rows),
        "flagged": len(flagged),
        "flagged_problems": len(degenerate),
    }


def summary_line(counts: Mapping[str, Any]) -> str:
    """Return the figures of `summary` in one line."""
    text = f"{counted(counts['rows'], 'row')}, {counts['accepted']} accepted"
    if counts["credited"]:
        means = f"mean {counts['mean']:.3f}, median {counts['median']:.3f}"
        means += f", geometric mean {counts['geometric_mean']:.3f}"
        text += f"; credited speedup of {counts['credited']}: {means}"
    if counts["unconfined"]:
        text += f"; {counts['unconfined']} ran where a candidate can write your files (evaluation.required_sandbox)"
    flagged = f"{counts['flagged']} on {counted(counts['flagged_problems'], 'degenerate problem')}"
    return f"{text}; flagged and left out of the means: {flagged if counts['flagged'] else 'none'}"
