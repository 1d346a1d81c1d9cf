"""bubblewrap (https://github.com/containers/bubblewrap): another program that makes the root which root.py makes.

    evaluator ──> bwrap, which waits ──> fork server, in the root ──clone──> supervisor ──fork──> contestant

Whichever of these is killed, those to the right of it die with it. There is no PID namespace before the supervisor's,
so that the evaluator can name all of them, and read what the kernel says about them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from ...errors import UserError
from .root import DEVICE_LINKS, SCRATCH, Place, device_nodes, layout
from .walls import Walls

_FIELD = "evaluation.bubblewrap"
# Of /proc, what tells of, or sets, more than processes. A new /proc can be mounted only where none of it is covered.
_COVERED = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")


@dataclass(frozen=True)
class Bubblewrap:
    """An installed one."""

    program: str  # its path
    version: str

    def __str__(self) -> str:
        return f"bubblewrap {self.version}"

    def command(self, walls: Walls, level: str, scratch: str, environment: dict[str, str]) -> list[str]:
        """What to put before a command so that it runs in the root. ``scratch``: folder that can be written to at the
        level of bubblewrap, where contestants have no /tmp of their own.
        """
        places = layout([*walls.readable, walls.package])
        words = [self.program, "--die-with-parent", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        words += _make(place for place in places if not place.in_scratch)
        words += ["--tmpfs", "/dev"]
        for node in device_nodes(walls.device):
            words += ["--dev-bind", node, node]
        for link, target in DEVICE_LINKS.items():
            words += ["--symlink", target, f"/dev/{link}"]
        words += ["--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        words += ["--bind", "/proc", "/proc"]
        if level == "bubblewrap":
            for path in filter(os.path.exists, _COVERED):
                words += ["--ro-bind", path, path]
        words += ["--perms", "1777", "--tmpfs", SCRATCH]
        words += _make(place for place in places if place.in_scratch)
        if level == "bubblewrap":
            words += [*_parents(scratch), "--bind", scratch, scratch]
        words += ["--remount-ro", "/", "--chdir", "/"]
        for name, value in environment.items():  # the loader takes some away from a program with root's rights
            words += ["--setenv", name, value]
        return [*words, "--"]


def _make(places: Iterable[Place]) -> list[str]:
    words = []
    for place in places:
        words += _parents(place.path)
        words += ["--symlink", place.target, place.path] if place.target else ["--ro-bind", place.path, place.path]
    return words


def _parents(path: str) -> list[str]:
    """Left to bubblewrap they are closed to everyone but root. One that is there stays as it is."""
    above = list(PurePath(path).parents)[-2::-1]
    return [word for folder in above for word in ("--perms", "0755", "--dir", str(folder))]


def find(setting: str) -> tuple[Bubblewrap | None, str]:
    """The one that `EvaluationConfig.bubblewrap` names, or why there is none. UserError for a path of none."""
    if setting == "never":
        return None, f"{_FIELD}=never"
    program = shutil.which("bwrap") if setting == "auto" else setting
    if program is None:
        return None, "no bwrap on PATH"
    program = os.path.abspath(program)
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, errors="replace")
        name, _, version = done.stdout.strip().partition(" ")
        trouble = "" if name == "bubblewrap" and version else "asked for its --version, it is no bubblewrap"
    except (OSError, subprocess.TimeoutExpired) as error:
        trouble, version = getattr(error, "strerror", "") or str(error), ""
    if not trouble:
        return Bubblewrap(program, version), ""
    if setting != "auto":
        raise not_usable(setting, trouble)
    return None, f"{program}: {trouble}"


def not_usable(setting: str, trouble: str) -> UserError:
    """For a path that the configuration names."""
    return UserError(f"{_FIELD}={setting} cannot be used: {trouble}; give the path of one that can, or auto, or never")
