"""Steps under way, on disk: a killed run goes on with the prompts and the completions that it had.

A file per step, `<label>.jsonl`: first the prompts and how they are asked, then every completion as it comes. It stays
until a checkpoint holds what the step taught. Verdicts are not here: the journal has them, by candidate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from msgspec import convert

from cudal1_ray.files import JsonLines
from cudal1_ray.prompting import Prompt
from cudal1_ray.rollout import Completion


class StepInFlight:
    """What is kept of one step.

    Attributes:
        prompts: as the step was begun with; empty when it was not.
        completions: in the order they came.
    """

    def __init__(self, path: Path):
        self._lines = JsonLines(path)
        self._header: dict[str, Any] = next((line for line in self._lines if "prompts" in line), {})
        self.prompts = convert(self._header.get("prompts", []), list[Prompt])
        self.completions = [convert(line["completion"], Completion) for line in self._lines if "completion" in line]

    def begin(self, prompts: Sequence[Prompt], n: int, temperature: float) -> None:
        """Record what is asked: `n` completions of each prompt. Completions of other prompts, of another number of them
        or at another temperature are of no use and are dropped.
        """
        how = {"n": n, "temperature": temperature}
        if list(prompts) != self.prompts or any(self._header.get(key) != value for key, value in how.items()):
            self.prompts, self.completions = list(prompts), []
            self._header = {"prompts": [dataclasses.asdict(prompt) for prompt in prompts], **how}
            self._lines.keep([self._header])

    def add(self, completion: Completion) -> None:
        self._lines.append({"completion": dataclasses.asdict(completion)})
        self.completions.append(completion)

    def drop_newer(self, policy_version: int) -> int:
        """Drop completions of later policies, which died with the process that had them; return how many there were."""
        remaining = [completion for completion in self.completions if completion.policy_version <= policy_version]
        dropped = len(self.completions) - len(remaining)
        if dropped:
            self.completions = remaining
            self._lines.keep(
                [self._header, *({"completion": dataclasses.asdict(completion)} for completion in remaining)]
            )
        return dropped


class InFlight:
    """The steps under way of a run."""

    def __init__(self, folder: Path):
        self._folder = folder

    def step(self, label: str) -> StepInFlight:
        """Return what is kept under a label such as "contrastive/7"; nothing, for a new one."""
        return StepInFlight(self._path(label))

    def forget(self, label: str) -> None:
        self._path(label).unlink(missing_ok=True)

    def keep(self, labels: Collection[str], among: str = "") -> None:
        """Forget the completions of all other labels that begin with `among`."""
        paths = {self._path(label) for label in labels}
        for path in self._folder.glob(f"{among}*") if self._folder.is_dir() else ():
            if path not in paths:
                path.unlink(missing_ok=True)

    def _path(self, label: str) -> Path:
        return self._folder / f"{label.replace('/', '-')}.jsonl"
