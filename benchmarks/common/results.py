"""Where results are: `benchmarks/results/<subject>/<date>-<device>-<commit>.json`, one file for each run."""

from __future__ import annotations

import datetime
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from cudal1_ray.analysis import describe_environment
from cudal1_ray.errors import UserError
from cudal1_ray.files import write_atomically

FOLDER = Path(__file__).resolve().parents[1] / "results"


def new_result(subject: str, device: str = "cpu") -> Path:
    """Return the path for a result of today's run at the current commit; "unknown" where there is no checkout."""
    return FOLDER / subject / f"{datetime.date.today().isoformat()}-{device}-{current_commit()}.json"


def current_commit() -> str:
    """Return the first seven digits of the checkout's commit; "unknown" where there is no checkout."""
    done = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=FOLDER.parent, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def current_command() -> str:
    """Return the command line of this process."""
    module = sys.modules["__main__"].__spec__
    program = [sys.argv[0]] if module is None else ["python", "-m", module.name.removesuffix(".__main__")]
    return shlex.join([*program, *sys.argv[1:]])


def latest_result(subject: str, device: str = "cpu", key: str = "") -> Path:
    """Return the newest result of a subject on a device that has the key (any, where it is empty); of those of one day,
    the one that was written last.

    Raises:
        UserError: naming the folder when it has none.
    """
    files = sorted((FOLDER / subject).glob(f"????-??-??-{device}-*.json"))
    files = [file for file in files if not key or key in json.loads(file.read_text())]
    if not files:
        raise UserError(f"{FOLDER / subject}: no result on {device}" + (f" with {key}" if key else ""))
    day = files[-1].name[:10]
    return max((file for file in files if file.name.startswith(day)), key=_written)


def _written(path: Path) -> tuple[str, str]:
    """Return when a result was written, in UTC ("" for one without a time), and its name."""
    return json.loads(path.read_text()).get("written", ""), path.name


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write a result, whole or not at all, with the names of files but not the folders they lay in.

    It names what made it, unless it does already: subject, commit, command and environment (hardware and versions).
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    origin = {"benchmark": path.parent.name, "commit": current_commit(), "command": current_command()}
    if "environment" not in result:
        origin["environment"] = describe_environment()
    result = {**origin, **result, "written": now}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(_without_folders(result), indent=1) + "\n")


def _without_folders(value: Any) -> Any:
    """Return the value with each path of this machine in it, at any depth, cut to its last part."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return re.sub(r"(?<![^\s=])/\S+", _file_name, value) if isinstance(value, str) else value


def _file_name(match: re.Match[str]) -> str:
    """Return the last part of a path that lies on this machine; "/v1/chat/completions" is a route, and stays."""
    path = Path(match[0])
    return path.name if len(path.parts) > 2 and Path(*path.parts[:2]).is_dir() else match[0]
