"""How a job goes, for a person: a line for each round, and a bar below them where there is a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def printable(text: str) -> str:
    """Return a text of a policy or a server without what would steer the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


class JobProgress:
    """Takes events; a context manager."""

    def __init__(self, console: Console):
        self._console, self._accepted, self._seen, self._best = console, 0, 0, 0.0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task("getting ready", total=None)

    def begin(self, rounds: int, samples_per_round: int) -> None:
        """Announce how much there is to come at most."""
        self._progress.update(self._bar, total=rounds * samples_per_round)

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "module" and event["status"] == "accepted":
            self._print(f"the module takes {event['reference_ms']:.4f} ms on {escape(printable(event['device_name']))}")
        elif kind == "exemplar":
            speed = f"{event['speedup']:.2f}x here" if event["status"] == "accepted" else "not right here"
            self._print(f"known from {escape(printable(event['origin']))}: {event['first']:.2f}x there, {speed}")
        elif kind == "candidate":
            self._candidate(event)
        elif kind == "round":
            best = f"best so far {event['best_speedup']:.2f}x" if event["best_speedup"] else "nothing right yet"
            self._print(f"round {event['round']}/{event['rounds']}: {self._accepted} of {self._seen}, {best}")
        elif kind == "confirmation":
            again = f"{event['speedup']:.2f}x ({event['speedup_low']:.2f} to {event['speedup_high']:.2f})"
            self._print(f"measured again: {event['first']:.2f}x, now {again}")
            self._progress.update(self._bar, description="measuring against baselines")
        elif kind in ("time_limit", "token_limit"):
            self._print(f"the {'time is' if kind == 'time_limit' else 'tokens are'} used up")

    def _candidate(self, event: dict[str, Any]) -> None:
        if event["status"] != "known":
            self._seen += 1
            self._accepted += event["status"] == "accepted"
            self._best = max(self._best, event["credited_speedup"])
        best = f", best {self._best:.2f}x" if self._best else ""
        self._progress.update(self._bar, advance=1, description=f"round {event['round']}{best}")

    def _print(self, line: str) -> None:
        self._console.print(line)

    def __enter__(self) -> JobProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
