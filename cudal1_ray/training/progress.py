"""Live progress of a run: stage, step, speed, success, best so far, and what each role is doing."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from cudal1_ray.analysis.run_data import counted_rows, is_accepted
from cudal1_ray.analysis.statistics import geometric_mean
from cudal1_ray.analysis.tables import format_duration
from cudal1_ray.evaluation import Verdict

HEARTBEAT_S = 30.0
# Metrics on the line of a finished step; all of them are in metrics.jsonl and in TensorBoard.
PRINTED_METRICS = (
    "loss",
    "success_rate",
    "own_kernel_share",
    "reward_mean",
    "reward_std",
    "geomean_speedup",
    "best_speedup",
    "truncated_share",
    "copy_rate",
    "completion_tokens_mean",
    "entropy",
    "kl",
    "evaluations",
)
IDLE = "idle"


class Progress:
    """A live panel on a terminal.

    Without one (a log file, CI): a line for each stage that begins and each step that ends, with the number of steps
    in all and the time left; after half a minute without a line, one with what each role does.
    """

    def __init__(self, run_name: str, run_path: str, console: Console | None = None):
        self.console = console or Console()
        self._title = f"cudal1 train · {run_name} · {run_path}"
        self._bars = Bars(
            TextColumn("[bold]{task.description:<18}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            TimeElapsedColumn(),
            console=self.console,
        )
        self._stages: dict[str, Any] = {}
        self._begun: dict[str, tuple[float, int]] = {}  # when a stage began here, and the steps that it had then
        self._roles: dict[str, str] = {}
        self._row: dict[str, Any] = {}
        self._evaluations, self._accepted, self._best, self._best_problem = 0, 0, 0.0, ""
        self._notes: list[str] = []
        self._refreshed = 0.0
        live = Live(console=self.console, refresh_per_second=4, transient=True)
        self._live = live if self.console.is_terminal else None
        self._started = self._printed = time.monotonic()
        self._over = threading.Event()

    def __enter__(self) -> Progress:
        if self._live:
            self._live.__enter__()
        else:
            self._print(self._title)
            threading.Thread(target=self._beat, name="progress", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._live:
            self._live.__exit__(*error)

    def stage(self, name: str, total: int, done: int = 0) -> None:
        """Announce a stage of `total` steps, of which a continued run has `done` already."""
        if name not in self._stages:
            self._stages[name] = self._bars.add_task(name.replace("_", " "), total=total, completed=done, note="")
            self._begun[name] = (time.monotonic(), done)
            if not self._live:
                of = f", from step {done + 1} of {total}" if done else f": {total} steps" if total > 1 else ""
                self._line(f"{name.replace('_', ' ')} begins{of}")
        self.refresh(force=True)

    def advance(self, name: str, note: str = "", steps: int = 1) -> None:
        bar = self._stages[name]
        self._bars.update(bar, advance=steps, note=note)
        if not self._live and self._bars.tasks[bar].finished:
            took = format_duration(time.monotonic() - self._begun[name][0])
            self._line(f"{name.replace('_', ' ')} ends after {took}{f': {note}' if note else ''}")
        self.refresh(force=True)

    def role(self, name: str, doing: str) -> None:
        """Display what a role is doing from now on; with an empty text it leaves the list."""
        if doing:
            self._roles[name] = doing
        else:
            self._roles.pop(name, None)

    def verdict(self, verdict: Verdict) -> None:
        self._evaluations += 1
        self._accepted += verdict.accepted
        if verdict.credited_speedup > self._best and not verdict.degenerate:
            self._best, self._best_problem = verdict.credited_speedup, verdict.problem_id

    def step(self, row: dict[str, Any]) -> None:
        """Display the metrics row of a finished step."""
        self._row = row
        if row.get("drift_alarm"):
            self.note(
                f"drift alarm: engine and learner differ by {row['drift_mean_abs']:.3g} nats per token, more than "
                "rollout.drift_band: weights may not have arrived, or precisions differ"
            )
        if not self._live:
            values = "  ".join(f"{key} {row[key]:.3g}" for key in PRINTED_METRICS if key in row)
            if "informative_groups" in row:
                values += f"  informative {row['informative_groups']:.0f}/{row['groups']:.0f}"
            total, left = self._totals(row["stage"], row["step"])
            self._line(f"{row['stage']} step {row['step']}{total}{left}  {values}".rstrip())
        self.refresh(force=True)

    def note(self, text: str) -> None:
        """Print a line of its own that stays on screen."""
        self._notes = [*self._notes[-3:], text]
        if not self._live:
            self._print(text)
        self.refresh(force=True)

    def refresh(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._live and (force or now - self._refreshed > 0.2):
            self._refreshed = now
            self._live.update(self._render())

    def _totals(self, stage: str, step: int) -> tuple[str, str]:
        """Return `/total` and the time left, from the steps of this stage that this process has done; empty where
        unknown.
        """
        if stage not in self._stages:
            return "", ""
        total = int(self._bars.tasks[self._stages[stage]].total or 0)
        since, before = self._begun[stage]
        if step <= before or step >= total:
            return f"/{total}", ""
        left_s = (time.monotonic() - since) / (step - before) * (total - step)
        return f"/{total}", f", {format_duration(left_s)} left in this stage"

    def _line(self, text: str) -> None:
        """Print a line with the time since this process began."""
        self._print(f"[{format_duration(time.monotonic() - self._started):>9}] {text}")

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _beat(self) -> None:
        """Print the roles' lines from a thread of its own: the main thread waits in a call, perhaps for good."""
        while not self._over.wait(HEARTBEAT_S / 4):
            busy = [f"{name}: {doing}" for name, doing in list(self._roles.items()) if doing != IDLE]
            if busy and time.monotonic() - self._printed >= HEARTBEAT_S:
                stage = next((f"{task.description}, " for task in self._bars.tasks[::-1] if not task.finished), "")
                self._line(f"... {stage}{'; '.join(busy)}")

    def _render(self) -> Panel:
        facts = Table.grid(padding=(0, 3))
        row = self._row
        facts.add_row(
            _fact("tokens/s", row.get("tokens_per_s"), "{:,.0f}"),
            _fact("evaluations", self._evaluations, "{:,}"),
            _fact("accepted", self._accepted / self._evaluations if self._evaluations else None, "{:.0%}"),
            _fact("best so far", self._best or None, "{:.2f}x " + self._best_problem),
        )
        facts.add_row(
            _fact("success", row.get("success_rate"), "{:.0%}"),
            _fact("mean speedup", row.get("mean_speedup"), "{:.2f}x"),
            _fact("geometric mean", row.get("geomean_speedup"), "{:.2f}x"),
            _fact("loss", row.get("loss"), "{:.3f}"),
        )
        facts.add_row(
            _fact("reward", row.get("reward_mean"), f"{{:.3f}} ± {row.get('reward_std', 0.0):.3f}"),
            _fact("informative groups", row.get("informative_groups"), f"{{:.0f}} of {row.get('groups', 0.0):.0f}"),
            _fact("own kernels", row.get("own_kernel_share"), "{:.0%}"),
            _fact("truncated", row.get("truncated_share"), "{:.0%}"),
        )
        roles = Table.grid(padding=(0, 2))
        for name, doing in self._roles.items():
            roles.add_row(Text(name, style="cyan"), Text(doing))
        notes = [Text(note, style="dim") for note in self._notes]
        return Panel(Group(self._bars.get_renderable(), "", facts, "", roles, *notes), title=escape(self._title))


def _fact(name: str, value: float | None, form: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), (form.format(value) if value is not None else "–", "bold"))


def batch_statistics(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Return success rate, mean and geometric mean speedup of a batch; a failure is 0 in the one, 0.1 in the other.

    Void verdicts and degenerate problems are left out, as in assessments; without any other there are no figures.
    """
    rows = counted_rows([verdict.to_dict() for verdict in verdicts])
    speedups = [row["credited_speedup"] for row in rows]
    if not rows:
        return {}
    return {
        "success_rate": sum(map(is_accepted, rows)) / len(rows),
        "mean_speedup": sum(speedups) / len(speedups),
        "geomean_speedup": geometric_mean(speedups),
        "best_speedup": max(speedups),
    }
