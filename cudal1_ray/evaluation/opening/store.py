"""Opened problems in files, for other evaluators of the same device and for later processes.

Opening a problem takes seconds: processes, a dozen calls of the reference in two precisions, comparisons (on one H100
2.6 to 7.5 s each, benchmarks/results/evaluator-cost). A session that another evaluator has opened is loaded in the time
of reading its bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pickle
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from cudal1_ray.evaluation.baselines import dressing
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.exchange.channel import SharedRegion
from cudal1_ray.evaluation.hardware import device_name
from cudal1_ray.evaluation.opening.folder import problem_folder
from cudal1_ray.evaluation.opening.keys import session_key
from cudal1_ray.evaluation.opening.session import ProblemFault, ProblemSession
from cudal1_ray.files import replacing
from cudal1_ray.problems import Problem

# Most bytes of one session; every evaluator opens a larger one itself. KernelBench's largest weights have 4 GiB.
_LARGEST_BYTES = 6 << 30
# Most bytes of all files, and their share of the disk space left for them; the least recently used ones go first.
_MOST_BYTES, _SHARE = 16 << 30, 0.25
# Settings that change nothing about what a session holds.
_WIRING = (
    "compile_cache", "compilers", "confirm_on", "live_mib", "live_references",
    "problem_cache", "readable_paths", "required_sandbox", "sandbox", "slots",
)  # fmt: skip
_UNREADABLE = (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError, KeyError, TypeError, ValueError)


@functools.cache
def _sources() -> str:
    """Return a hash of the evaluator's own code: where it opens or writes problems differently, they are new ones."""
    package = Path(__file__).parents[1]
    texts = [file.read_bytes() for file in sorted(package.rglob("*.py"))]
    return hashlib.sha256(b"".join(texts)).hexdigest()


class SessionStore:
    """Files of one folder, by problem, settings, torch and hardware. Nothing is stored without `problem_folder`."""

    def __init__(self, config: EvaluationConfig) -> None:
        folder = problem_folder(config)
        self._used = folder is not None
        if folder is None:
            return
        self._config, self._folder = config, folder
        settings = {key: value for key, value in dataclasses.asdict(config).items() if key not in _WIRING}
        self._settings = json.dumps(
            [_sources(), torch.__version__, device_name(config.device), settings, dressing(config.against)],
            sort_keys=True,
        )

    def _path(self, problem: Problem | ProblemSession, draws: bool) -> Path:
        name = hashlib.sha256(f"{self._settings}\0{session_key(problem)}\0{draws}".encode()).hexdigest()
        return self._folder / name[:32]

    def load(self, problem: Problem, draws: bool) -> ProblemSession | ProblemFault | None:
        """Return the stored session or fault of a problem; None without either. `draws`: see `open_problem`."""
        if not self._used:
            return None
        path = self._path(problem, draws)
        try:
            content = torch.load(path, mmap=True, weights_only=False)
            os.utime(path)
        except (*_UNREADABLE, RuntimeError):  # no file, or one that was cut off
            return None
        if "fault" in content:
            return ProblemFault(*content["fault"])
        size, data = content.pop("pool")
        pool = SharedRegion(size, others_read_only=True)
        pool.memory[: len(data)] = memoryview(data.numpy())
        for trial in content["trials"]:
            trial.values = [memoryview(values.numpy()) for values in trial.values]
        return ProblemSession(**content, config=self._config, pool=pool)

    def save(self, session: ProblemSession, draws: bool) -> bool:
        """Write an opened problem, unless it is too large, or the disk is full; return whether it is stored."""
        if not self._used or session.nbytes > _LARGEST_BYTES:
            return False
        fields = {field.name: getattr(session, field.name) for field in dataclasses.fields(session)}
        for name in ("config", "pool", "reference"):
            del fields[name]
        # As tensors, weights and inputs of a gigabyte are written from where they lie, and a reader maps them.
        fields["trials"] = [
            dataclasses.replace(trial, values=[_tensor(values, len(values)) for values in trial.values])
            for trial in session.trials
        ]
        # What lies behind `slots` is rewritten for each call.
        fields["pool"] = session.pool.size, _tensor(session.pool.memory, session.slots)
        return self._write(self._path(session, draws), fields, session.nbytes)

    def save_fault(self, problem: Problem, fault: ProblemFault, draws: bool) -> None:
        """Write why a problem cannot be evaluated, where its text is the reason, and not the moment."""
        if self._used and fault.reason == "degenerate_input":
            self._write(self._path(problem, draws), {"fault": (fault.reason, str(fault))}, 0)

    def _write(self, path: Path, content: dict[str, Any], nbytes: int) -> bool:
        with suppress(OSError, RuntimeError):  # a full disk only costs the next evaluator time
            self._make_room(nbytes)
            with replacing(path, 0o600, durable=False) as file:
                torch.save(content, file)
            return True
        return False

    def _make_room(self, nbytes: int) -> None:
        """Delete the least recently used files until one of `nbytes` more is within the limit of all."""
        files = []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                files.append((path.stat().st_mtime, path.stat().st_size, path))
        total = sum(size for _, size, _ in files)
        over = total + nbytes - min(_MOST_BYTES, _SHARE * (total + shutil.disk_usage(self._folder).free))
        for _, size, path in sorted(files):
            if over <= 0:
                break
            path.unlink(missing_ok=True)
            over -= size


def _tensor(memory: Any, size: int) -> torch.Tensor:
    """Return the first `size` bytes as a tensor, in place: torch writes bytes as text, fourteen times as slowly."""
    return torch.frombuffer(memory, dtype=torch.uint8, count=size) if size else torch.empty(0, dtype=torch.uint8)
