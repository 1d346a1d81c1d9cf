"""A run is a folder: what is where in it, and writes that a kill at any moment cannot spoil."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cudal1_ray.analysis import describe_environment
from cudal1_ray.config import STAGES, Config, read_settings, to_dict, to_yaml
from cudal1_ray.errors import UserError
from cudal1_ray.files import claim_file, write_atomically
from cudal1_ray.problems import Problem
from cudal1_ray.training import continuation


class RunFolder:
    """Paths of one run, and the few kinds of write it needs."""

    def __init__(self, path: Path):
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.verdicts = path / "verdicts.jsonl"
        self.assessments = path / "assessments.jsonl"
        self.assessments_during = path / "assessments_during.jsonl"
        self.selections = path / "selections.jsonl"
        self.exemplars = path / "exemplars"
        self.problems = path / "problems.jsonl"
        self.rollouts = path / "rollouts"
        self.assessed = path / "assessed"
        self.in_flight = path / "rollouts" / "in_flight"
        self.checkpoints = path / "checkpoints"
        self.policy = path / "policy"
        self.adapter = path / "adapter"

    @classmethod
    def of(cls, config: Config) -> RunFolder:
        """Return where a configuration has its run, whether or not one is there."""
        return cls(Path(config.runs_dir) / config.name)

    @classmethod
    def open(cls, config: Config) -> RunFolder:
        """Create the run's folder, or continue the one that is there.

        Settings of how long, or how it is run, may differ from those that the run has; a run of which no step
        was ever finished takes any. What differs is in environment.jsonl.

        Raises:
            UserError: when the folder holds a run that computes something else (the first key that differs is named),
                or cannot be written.
        """
        run = cls.of(config)
        file = run.path / "config.yaml"
        changed: list[continuation.Change] = []
        if file.exists():
            check_free_space(run.path, config.checkpoint.min_free_mib)
            changed = continuation.changes(read_settings(run.path), to_dict(config), to_dict(Config()))
            run._check_changes(changed)
        try:
            run.rollouts.mkdir(parents=True, exist_ok=True)
            check_free_space(run.path, config.checkpoint.min_free_mib)
            environment = describe_environment()
            if not file.exists():
                write_atomically(run.path / "environment.json", json.dumps(environment, indent=1))
            if changed or not file.exists():
                write_atomically(file, to_yaml(config))
            continuation.note_start(run.path, environment, changed)
        except OSError as error:
            raise UserError(f"{run.path}: cannot be written ({error.strerror}); choose another runs_dir=") from None
        return run

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other commands from training or assessing the run until the block ends, however that ends.

        Raises:
            UserError: when another command does so, or the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(self.path / ".lock", "ab")  # noqa: SIM115 (closed below)
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be written ({error.strerror}); choose another folder (runs_dir= of a new run)"
            ) from None
        with lock:
            if not claim_file(lock):
                raise UserError(
                    f"{self.path}: another command trains or assesses this run; wait for it, or take another run"
                )
            yield

    def record_problems(self, problems: Sequence[Problem]) -> None:
        """Write problems.jsonl: id, name, level, split and source of every problem of the run."""
        rows = (
            {"problem_id": p.problem_id, "name": p.name, "level": p.level, "split": p.split, "source": p.source}
            for p in problems
        )
        write_atomically(self.problems, "".join(json.dumps(row) + "\n" for row in rows))

    def _check_changes(self, changed: list[continuation.Change]) -> None:
        """Check changed settings, and clear what a failed start has left. Raises UserError on the first that the run
        cannot take.
        """
        refused = [change for change in changed if not change.allowed]
        if not continuation.has_finished_step(self.path):
            if refused or any(change.key in continuation.PREPARED_FROM for change in changed):
                continuation.begin_anew(self.path, changed)
            return
        for change in refused:
            may_grow = ", and may only grow" if change.key in continuation.HOW_LONG else ""
            raise UserError(
                f"{self.path} holds a run with another configuration: {change}{may_grow}; give this one another "
                f"name=... (and init_from={self.path} to start from that run), or delete that folder"
            )
        for change in changed:
            stage = continuation.HOW_LONG.get(change.key, "")
            if stage and (later := continuation.later_stage(self.path, stage, STAGES)):
                raise UserError(
                    f"{self.path}: {change}, but its {later} stage began where {stage} ended then; give a longer "
                    "run another name=..."
                )


def check_free_space(path: Path, least_mib: int) -> None:
    """Stop a run while there is still room to stop in: writers below fail in many ways on a full disk.

    Raises:
        UserError: when less than `least_mib` is free where `path` is.
    """
    free_mib = shutil.disk_usage(path).free >> 20
    if free_mib < least_mib:
        raise UserError(
            f"{path}: {free_mib} MiB free on this disk, checkpoint.min_free_mib={least_mib} are wanted; "
            "make room, then the same command continues the run"
        )
