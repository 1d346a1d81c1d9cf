"""Results: where they are, the form of their files, and how they are written and read.

One file holds one run: `benchmarks/results/<subject>/<date>-<device>-<commit>.json`, with a label behind the commit
where several runs share all three. A run is what one command measures. It is also several commands whose figures are
compared with one another and mean little alone: the arms of `ablations`, today's and the paper's sizes in
`evaluator-phases`, the shardings of `learner-sharding`, the settings that one host tried in turn in
`evaluator-throughput-settings`.
"""

from __future__ import annotations

import datetime
import functools
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
# `git archive` writes its commit into this file: .gitattributes asks for it.
ARCHIVED_COMMIT = Path(__file__).with_name("archived_commit.txt")
NAME = re.compile(r"\d{4}-\d\d-\d\d-[a-z0-9]+-(?P<commit>[0-9a-f]{7,40}|unknown)(-[a-z0-9-]+)?")
# What stands for a configuration or an environment that was not recorded; a commit or a command may begin so.
NOT_RECORDED = "not recorded"
# Every key of a result and its type; `note` may be missing. The configuration is the settings that were run with, the
# environment the hardware and the versions, `written` when the file was written or, where that was not recorded, when
# the commit that brought it was made.
FORM = {
    "benchmark": str, "commit": str, "command": str, "configuration": dict, "environment": dict, "metrics": dict,
    "note": str, "written": str,
}  # fmt: skip


def new_result(subject: str, device: str = "cpu") -> Path:
    """Return the path for a result of today's run at the current commit; "unknown" where there is no checkout."""
    return FOLDER / subject / f"{datetime.date.today().isoformat()}-{device}-{current_commit()}.json"


def current_commit() -> str:
    """Return the first seven digits of the commit of the checkout, or of what `git archive` made; "unknown" else."""
    done = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=FOLDER.parent, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout.strip()
    archived = ARCHIVED_COMMIT.read_text().strip() if ARCHIVED_COMMIT.is_file() else ""
    return archived[:7] if re.fullmatch("[0-9a-f]{7,}", archived) else "unknown"


def current_command() -> str:
    """Return the command line of this process."""
    module = sys.modules["__main__"].__spec__
    program = [sys.argv[0]] if module is None else ["python", "-m", module.name.removesuffix(".__main__")]
    return shlex.join([*program, *sys.argv[1:]])


def latest_result(subject: str, device: str = "cpu", key: str = "") -> Path:
    """Return the newest result of a subject on a device whose metrics have the key (any, where it is empty); of those
    of one day, the one that was written last.

    Raises:
        UserError: naming the folder when it has none.
    """
    files = (FOLDER / subject).glob(f"????-??-??-{device}-*.json")
    results = {file: read_result(file) for file in files}
    written = [(file.name[:10], of["written"], file) for file, of in results.items() if not key or key in of["metrics"]]
    if not written:
        raise UserError(f"{FOLDER / subject}: no result on {device}" + (f" with {key}" if key else ""))
    return max(written)[-1]


def read_result(path: Path) -> dict[str, Any]:
    """Return what a result file holds.

    Raises:
        UserError: naming the file when it cannot be read or has another form.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; run its benchmark first") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error})") from None
    if wrong := deviations(content):
        raise UserError(f"{path}: {'; '.join(wrong)}; see benchmarks/common/results.py")
    return content


def deviations(content: Any) -> list[str]:
    """Return what sets a file's content apart from the form of a result; empty when nothing does."""
    if not isinstance(content, dict):
        return ["no JSON object"]
    wrong = [f"{key}: no key of a result" for key in content.keys() - FORM.keys()]
    for key, kind in FORM.items():
        if key not in content:
            wrong += [] if key == "note" else [f"{key}: missing"]
        elif not content[key] or not isinstance(content[key], kind):
            if key not in ("configuration", "environment") or content[key] not in (NOT_RECORDED, {}):
                wrong.append(f"{key}: needs a {kind.__name__}")
    return wrong


def write_result(path: Path, metrics: dict[str, Any], configuration: dict[str, Any], **head: Any) -> None:
    """Write a result, whole or not at all, with the names of files but not the folders they lay in.

    Args:
        head: a `note`, and `commit`, `command` and `environment` where they are not those of this process.
    """
    result = {
        "benchmark": path.absolute().parent.name,
        "commit": current_commit(),
        "command": current_command(),
        "configuration": configuration,
        "environment": head.pop("environment", None) or _environment(),
        "metrics": metrics,
        **{key: value for key, value in head.items() if value},
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(_without_folders(result), indent=1) + "\n")


_environment = functools.cache(describe_environment)  # some benchmarks write after every row


def _without_folders(value: Any) -> Any:
    """Return the value with each path of this machine in it, at any depth, cut to its last part."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(item) for item in value]
    if isinstance(value, Path | slice):  # as command lines have them
        value = str(value)
    return re.sub(r"(?<![^\s=\"'(])/\S+", _file_name, value) if isinstance(value, str) else value


def _file_name(match: re.Match[str]) -> str:
    """Return the last part of a path that lies on this machine; "/v1/chat/completions" is a route, and stays."""
    path = Path(match[0])
    return path.name if len(path.parts) > 2 and Path(*path.parts[:2]).is_dir() else match[0]
