"""Where results are: `benchmarks/results/<subject>/<date>-<device>-<commit>.json`, one file for each run."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError

FOLDER = Path(__file__).resolve().parents[1] / "results"


def new_result(subject: str, device: str = "cpu") -> Path:
    """Return the path for a result of today's run at the current commit; "unknown" where there is no checkout."""
    done = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=FOLDER.parent, capture_output=True, text=True)
    commit = done.stdout.strip() if done.returncode == 0 else "unknown"
    return FOLDER / subject / f"{datetime.date.today().isoformat()}-{device}-{commit}.json"


def latest_result(subject: str, device: str = "cpu") -> Path:
    """Return the newest result of a subject on a device.

    Raises:
        UserError: naming the folder when it has none.
    """
    found = sorted((FOLDER / subject).glob(f"????-??-??-{device}-*.json"))
    if not found:
        raise UserError(f"{FOLDER / subject}: no result on {device}")
    return found[-1]


def without_folders(value: Any) -> Any:
    """Return the value with each absolute path in it, at any depth, cut to its last part: a result is of no machine."""
    if isinstance(value, dict):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") and " " not in value else value
