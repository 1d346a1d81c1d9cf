"""Metrics of a run: reduced per step by RLlib's `MetricsLogger`, kept as JSON lines and for TensorBoard."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from tensorboardX import SummaryWriter

from cudal1_ray.files import JsonLines
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.tracking import WandbTracker


class RunMetrics:
    """Collects values during a step and writes one row at its end: metrics.jsonl, TensorBoard's files, the tracker.

    `add` sums within the step (seconds busy, tokens, evaluations), `mean` averages, `set` keeps the largest value.
    """

    def __init__(self, run: RunFolder, tracker: WandbTracker | None = None):
        self.lines = JsonLines(run.metrics)
        self._writer = SummaryWriter(str(run.path / "tb"), flush_secs=5)
        self._tracker = tracker
        self._started = time.perf_counter()
        self._before_s = max((row.get("wall_s", 0.0) for row in self.lines), default=0.0)
        self._logger = MetricsLogger(root=True)

    def add(self, key: str, value: float) -> None:
        self._logger.log_value(key, value, reduce="sum")

    def mean(self, key: str, value: float) -> None:
        self._logger.log_value(key, value, reduce="mean", window=10_000)

    def set(self, key: str, value: float) -> None:
        self._logger.log_value(key, value, reduce="max")

    def discard(self) -> None:
        """Forget what was collected since the last step."""
        self._logger = MetricsLogger(root=True)

    @property
    def wall_s(self) -> float:
        """Return the seconds of work on this run, those before an interruption included."""
        return self._before_s + time.perf_counter() - self._started

    def finish_step(self, stage: str, step: int, step_s: float) -> dict[str, Any]:
        """Reduce what was collected to one row, write it, and start the next step with nothing."""
        values = {key: float(value) for key, value in self._logger.reduce(compile=True).items()}
        self._logger = MetricsLogger(root=True)
        row: dict[str, Any] = {
            "stage": stage,
            "step": step,
            "wall_s": round(self.wall_s, 3),
            "step_s": round(step_s, 3),
            **{key: round(value, 6) for key, value in values.items() if math.isfinite(value)},
        }
        self.lines.append(row)
        for key, value in values.items():
            if math.isfinite(value):
                self._writer.add_scalar(f"{stage}/{key}", value, step)
        self._writer.flush()
        if self._tracker is not None:
            self._tracker.log(row)
        return row

    def show(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Write values to TensorBoard alone, under `prefix/name`."""
        for key, value in values.items():
            self._writer.add_scalar(f"{prefix}/{key}", value, step)
        self._writer.flush()


def rewind_rows(lines: JsonLines, stages_done: list[str], stage: str, step: int) -> None:
    """Drop the rows of steps after step `step` of `stage`, except those of the stages done."""
    keep = [r for r in lines if r["stage"] in stages_done or (r["stage"] == stage and r["step"] <= step)]
    if len(keep) != len(lines):
        lines.keep(keep)
