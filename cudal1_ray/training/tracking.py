"""Weights & Biases: the same rows that metrics.jsonl gets. Its package is imported if `tracking.service` needs it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.files import write_atomically
from cudal1_ray.training.config import TrackingConfig


def open_tracker(config: TrackingConfig, path: Path, settings: dict[str, Any]) -> WandbTracker | None:
    """Return the configured tracker, None for `tracking.service=none`. Raises UserError as `WandbTracker` does."""
    return WandbTracker(config, path, settings) if config.service == "wandb" else None


class WandbTracker:
    """One run there. A continued run goes on under the same id, the name of its folder and a number kept in it.

    Args:
        path: the run's folder; what is written offline lies in its `wandb/`.
        settings: the run's configuration, shown beside its curves.

    Raises:
        UserError: when the package is not installed, or the service cannot be reached or refuses.
    """

    def __init__(self, config: TrackingConfig, path: Path, settings: dict[str, Any]):
        try:
            import wandb
        except ImportError as error:
            raise UserError(f"tracking.service=wandb: {error}; pip install wandb, or take tracking=none") from None
        file = path / "wandb_id"
        run_id = file.read_text().strip() if file.exists() else uuid.uuid4().hex[:8]
        write_atomically(file, run_id)
        try:
            self._run = wandb.init(
                project=config.project,
                entity=config.entity,
                mode=config.mode,
                name=path.name,
                id=run_id,
                resume="allow",
                dir=str(path),
                config=settings,
                settings=wandb.Settings(silent=True),
            )
        except wandb.errors.Error as error:
            raise UserError(f"tracking.service=wandb: {error}; `wandb login`, or tracking.mode=offline") from None
        self._run.define_metric("*", step_metric="wall_s")

    def log(self, row: dict[str, Any]) -> None:
        """Send one row of metrics.jsonl, its numbers under `<stage>/<key>`."""
        numbers = {f"{row['stage']}/{key}": value for key, value in row.items() if isinstance(value, (int, float))}
        self._run.log({**numbers, "wall_s": row["wall_s"]})

    def finish(self) -> None:
        """Wait until everything is sent, or on disk."""
        self._run.finish()
