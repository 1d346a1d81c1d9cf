"""Checkpoints: a folder per step, complete or absent, from which the same command continues a killed run."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.rllib.utils.checkpoints import Checkpointable

from cudal1_ray.config import STAGES
from cudal1_ray.errors import UserError, first_line
from cudal1_ray.files import replace_folder, replacing_folder
from cudal1_ray.rewards import RewardsConfig, RewardSmoother
from cudal1_ray.training.problem_history import ProblemHistory

Save = Callable[[Path], None]


class TrainingState(Checkpointable):
    """What the driver itself must remember between steps; RLlib's `Checkpointable` writes and reads it."""

    def __init__(self, seed: int, rewards: RewardsConfig):
        self.stage, self.step, self.stage_finished = "", 0, False
        self.policy_version = 0
        self.smoother = RewardSmoother(rewards)
        self.problems = ProblemHistory()
        self.stages_done: list[str] = []
        self._arguments = (seed, rewards)

    def get_state(self, components=None, *, not_components=None, **kwargs) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "step": self.step,
            "stage_finished": self.stage_finished,
            "stages_done": list(self.stages_done),
            "policy_version": self.policy_version,
            "smoother": self.smoother.get_state(),
            "problems": self.problems.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        for key in ("stage", "step", "stage_finished", "policy_version"):
            setattr(self, key, state[key])
        self.stages_done = list(state["stages_done"])
        self.smoother.set_state(state["smoother"])
        self.problems.set_state(state.get("problems", {}))

    def get_ctor_args_and_kwargs(self) -> tuple[tuple, dict[str, Any]]:
        return self._arguments, {}


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint folder: `learner/` (weights, optimiser, RNG of every rank), `state/` (the driver's), `adapter/`
    (PEFT's format) where adapters train, and at the end of a stage, or always where the run exports its policy,
    `policy/` (weights and tokenizer in Hugging Face format, adapters merged)."""

    path: Path
    stage: str
    step: int
    final: bool

    @property
    def learner(self) -> Path:
        return self.path / "learner"

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def adapter(self) -> Path:
        return self.path / "adapter"

    @property
    def policy(self) -> Path:
        return self.path / "policy"


def checkpoint_at(path: Path) -> Checkpoint | None:
    """Return the checkpoint whose folder `path` is; None when it is none."""
    stage, _, step = path.name.rpartition("-")
    final = step == "final"
    if stage in STAGES and (final or step.isdecimal()) and (path / "state").is_dir():
        return Checkpoint(path, stage, 10**9 if final else int(step), final)
    return None


def read_state(checkpoint: Checkpoint) -> TrainingState:
    """Return the driver's state as the checkpoint holds it.

    Raises:
        UserError: naming the folder that is damaged.
    """
    try:
        return TrainingState.from_checkpoint(str(checkpoint.state.resolve()))
    except Exception as error:  # of any kind: it unpickles
        advice = "restore it, or delete this checkpoint to go on from the one before"
        raise UserError(f"{checkpoint.state}: cannot be read ({first_line(error)}); {advice}") from None


class CheckpointStore:
    """The checkpoints of a run, in the order they were made. `export`: with the policy in each of them."""

    def __init__(self, folder: Path, keep: int, export: bool = False):
        self._folder, self._keep, self._export = folder, keep, export

    def all(self) -> list[Checkpoint]:
        paths = self._folder.glob("*-*") if self._folder.is_dir() else ()
        checkpoints = [checkpoint for path in paths if (checkpoint := checkpoint_at(path)) is not None]
        return sorted(checkpoints, key=lambda c: (STAGES.index(c.stage), c.step))

    def reopen(self, checkpoint: Checkpoint, step: int) -> Checkpoint:
        """Turn the last checkpoint of a stage that continues after all into that of its `step`."""
        path = self._folder / f"{checkpoint.stage}-{step:06d}"
        replace_folder(checkpoint.path, path)
        return Checkpoint(path, checkpoint.stage, step, False)

    def latest(self) -> Checkpoint | None:
        return self.all()[-1] if self.all() else None

    def final(self, stage: str) -> Checkpoint | None:
        """Return the checkpoint with which a stage ended, or None when it did not."""
        return next((c for c in self.all() if c.stage == stage and c.final), None)

    def write(
        self,
        state: TrainingState,
        save_learner: Save,
        save_policy: Save,
        save_adapter: Save = lambda folder: None,
    ) -> Checkpoint:
        """Write a checkpoint of `state`, the savers adding their folders; `save_policy` only where it is exported,
        `save_adapter` where there is one.

        Older ones go.
        """
        name = f"{state.stage}-{'final' if state.stage_finished else f'{state.step:06d}'}"
        with replacing_folder(self._folder / name) as partial:
            checkpoint = Checkpoint(partial, state.stage, state.step, state.stage_finished)
            save_learner(checkpoint.learner)
            save_adapter(checkpoint.adapter)
            if checkpoint.final or self._export:
                save_policy(checkpoint.policy)
            state.save_to_path(str(checkpoint.state.resolve()))
        saved = dataclasses.replace(checkpoint, path=self._folder / name)
        steps = [c for c in self.all() if not c.final]
        surplus = [c for c in steps if c.stage != state.stage or state.stage_finished]
        for old in surplus + [c for c in steps if c not in surplus][: -self._keep]:
            shutil.rmtree(old.path, ignore_errors=True)
        return saved
