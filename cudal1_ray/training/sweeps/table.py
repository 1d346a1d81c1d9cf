"""Progress of a sweep: one row per job, read from the runs' own folders."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cudal1_ray.files import read_last_json_line
from cudal1_ray.training.sweeps.jobs import SweepJob
from cudal1_ray.wording import counted

STYLES = {
    "waiting": "dim", "running": "cyan", "finished": "green", "failed": "red", "stopped": "yellow",
    "interrupted": "yellow",
}  # fmt: skip


class SweepTable:
    """A live table on a terminal; one line per start and end of a job where there is none.

    Args:
        folder: the sweep's.
        jobs: all of the sweep's jobs.
        done: names of those whose run was finished before.
    """

    def __init__(
        self, folder: Path, jobs: Sequence[SweepJob], done: Collection[str] = (), console: Console | None = None
    ):
        self.console = console or Console()
        self._folder, self._jobs = folder, jobs
        self._states = {job.name: "finished" if job.name in done else "waiting" for job in jobs}
        self._causes: dict[str, str] = {name: "before" for name in done}
        self._spans: dict[str, tuple[float, float | None]] = {}  # start and end on the monotonic clock
        live = Live(console=self.console, refresh_per_second=2)
        self._live = live if self.console.is_terminal else None

    def __enter__(self) -> SweepTable:
        if self._live:
            self._live.__enter__()
        else:
            done = sum(state == "finished" for state in self._states.values())
            before = f", {done} of them finished before" if done else ""
            self._print(f"sweep of {counted(len(self._jobs), 'run')} in {self._folder}{before}")
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.update(self.render())
            self._live.__exit__(*error)

    def started(self, job: SweepJob) -> None:
        self._states[job.name] = "running"
        self._spans[job.name] = (time.monotonic(), None)
        if not self._live:
            self._print(f"started      {job.name}")

    def ended(self, job: SweepJob, state: str, cause: str) -> None:
        self._states[job.name], self._causes[job.name] = state, cause
        start = self._spans.get(job.name, (time.monotonic(), None))[0]
        self._spans[job.name] = (start, time.monotonic())
        if not self._live:
            why = f": {cause}; log: {self._folder / 'logs' / job.name}.log" if state == "failed" else ""
            self._print(f"{state:<12} {job.name} after {self._minutes(job.name)} min{why}")

    def refresh(self) -> None:
        if self._live:
            self._live.update(self.render())

    def render(self) -> Table:
        """Return the table as it is now."""
        count = {state: list(self._states.values()).count(state) for state in STYLES}
        summary = ", ".join(f"{n} {state}" for state, n in count.items() if n)
        table = Table(
            title=escape(f"cudal1 train -m · {self._folder} · {summary}"), box=SIMPLE_HEAD, title_justify="left"
        )
        table.add_column("job", no_wrap=True)
        for heading in ("state", "stage", "step", "success", "geomean", "minutes", ""):
            number = heading in ("step", "success", "geomean", "minutes")
            table.add_column(heading, justify="right" if number else "left", overflow="fold")
        for job in self._jobs:
            state, row = self._states[job.name], read_last_json_line(self._folder / job.name / "metrics.jsonl")
            table.add_row(
                Text(job.name),
                Text(state, style=STYLES[state]),
                str(row.get("stage", "")).replace("_", " "),
                str(row.get("step", "")),
                f"{row['success_rate']:.0%}" if "success_rate" in row else "",
                f"{row['geomean_speedup']:.2f}x" if "geomean_speedup" in row else "",
                self._minutes(job.name),
                Text(self._causes.get(job.name, "")),
            )
        return table

    def _minutes(self, name: str) -> str:
        if name not in self._spans:
            return ""
        start, end = self._spans[name]
        return f"{((end or time.monotonic()) - start) / 60:.1f}"

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)
