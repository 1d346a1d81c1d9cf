"""The folder of opened problems, which decides what is right: this user's own, and closed to others."""

from __future__ import annotations

import os
from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.sandbox.walls import UNCONFINED


def problem_folder(config: EvaluationConfig) -> Path | None:
    """Return the folder in which opened problems are kept, made where it is missing. Return None where no folder is
    named, and where the sandbox lets candidates read this user's files, since opened problems contain the right
    answers. Raise UserError as `require_closed_folder` does.
    """
    if not config.problem_cache or {config.required_sandbox, config.sandbox} & set(UNCONFINED):
        return None
    folder = Path(config.problem_cache)
    require_closed_folder(folder)
    return folder


def require_closed_folder(folder: Path) -> None:
    """Make a folder for opened problems, where there is none. Raises UserError unless it is this user's own, and others
    cannot write to it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except OSError as error:
        raise UserError(f"evaluation.problem_cache {folder}: {error.strerror}") from None
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise UserError(
            f"evaluation.problem_cache {folder}: others can write to it; give a folder of your own, mode 0700"
        )
