"""Which sandbox this machine allows, and who builds the root of it. What is chosen has been entered before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from ...errors import UserError
from ...files import OwnedFolder
from .bubblewrap import Bubblewrap, find, not_usable
from .root import layout
from .walls import LEVELS, Walls, package_folder, readable_paths, try_level

_SEPARATE = ("mnt", "net", "ipc", "uts")  # namespaces that bubblewrap makes for a server
_PROBE_S = 60.0


@dataclass(frozen=True)
class Sandbox:
    """What the contestants of one evaluator run in."""

    level: str  # "": the strongest that a server finds by its own calls
    bubblewrap: Bubblewrap | None = None  # that builds the root
    unused: str = ""  # why none does

    def __str__(self) -> str:
        if self.level == "namespaces":
            return f"namespaces (root by {self.bubblewrap or f'our own calls: {self.unused}'})"
        return f"{self.level} ({self.bubblewrap or self.unused})"


def choose(
    device: str, readable: list[str], environment: dict[str, str], *, wanted: str = "", bubblewrap: str = "auto"
) -> Sandbox:
    """The strongest sandbox, or the ``wanted`` level. At the level of namespaces bubblewrap goes before our own calls.

    Args:
        device: cpu or cuda, as of `Walls`.
        readable: what contestants may read.
        environment: that a server would have.
        wanted: a level, or "" for the strongest.
        bubblewrap: as of `EvaluationConfig.bubblewrap`.

    Raises:
        UserError: ``wanted`` is no level, or the one of bubblewrap and it cannot be entered; ``bubblewrap`` is a path
            of something that cannot be used.
    """
    if wanted not in ("", *LEVELS):
        raise UserError(f"evaluation.sandbox: {wanted!r} is none of {', '.join(LEVELS)}")
    program, trouble = find(bubblewrap)
    if program is None or wanted not in ("", "namespaces", "bubblewrap"):
        if wanted == "bubblewrap":
            raise UserError(
                f"evaluation.sandbox=bubblewrap cannot be had here: {trouble}; install it, or allow another"
            )
        return Sandbox(wanted, None, trouble or f"{program} is not used at this level")
    named = bubblewrap != "auto"
    with OwnedFolder("sandbox") as folder:
        root = str(folder.path)
        walls = Walls(root, tuple(readable), package_folder(), device)
        if wanted != "bubblewrap":
            trouble = _trouble(program, "namespaces", walls, root, environment)
            if not trouble:
                return Sandbox("namespaces", program)
            own = wanted or _own_level(walls, environment)
            if own == "namespaces" and named:
                raise not_usable(bubblewrap, trouble)
            if own == "namespaces":
                return Sandbox(own, None, f"{program} cannot be used: {trouble}")
        second = _trouble(program, "bubblewrap", walls, root, environment)
    if not second:
        return Sandbox("bubblewrap", program)
    if named:
        raise not_usable(bubblewrap, second)
    if wanted == "bubblewrap":
        raise UserError(f"evaluation.sandbox=bubblewrap cannot be had here: {second}; allow another, or leave it empty")
    return Sandbox(own, None, f"{program} cannot be used: {second}")


def _trouble(program: Bubblewrap, level: str, walls: Walls, scratch: str, environment: dict[str, str]) -> str:
    """What keeps a contestant from entering the level in a root by bubblewrap; empty if nothing does."""
    outside = {name: os.readlink(f"/proc/self/ns/{name}") for name in _SEPARATE}
    asked = {"walls": walls.to_dict(), "level": level, "scratch": scratch, "outside": outside}
    code = (
        "import sys; from cudal1_ray.evaluation.sandbox.choosing import enter_for_a_try; enter_for_a_try(sys.argv[1])"
    )
    command = [*program.command(walls, level, scratch, environment), sys.executable, "-c", code, json.dumps(asked)]
    return _said(command, environment)[1]


def enter_for_a_try(text: str) -> None:
    """In bubblewrap's root: the rest of the level, for good. OSError when it cannot be had, or the root is none."""
    asked = json.loads(text)
    for name, outside in asked["outside"].items():
        if os.readlink(f"/proc/self/ns/{name}") == outside:
            raise OSError(f"it makes no {name} namespace")
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        raise OSError("its root can be written to")
    walls = Walls.from_dict(asked["walls"])
    try_level(asked["level"], walls, asked["scratch"], built=True)
    for place in layout([*walls.readable, walls.package]):  # by who the server is from now on
        if not os.path.lexists(place.path):
            raise OSError(f"{place.path} is out of reach in its root")


def _own_level(walls: Walls, environment: dict[str, str]) -> str:
    code = (
        "import json,sys; from cudal1_ray.evaluation.sandbox.walls import Walls, probe;"
        "print(probe(Walls.from_dict(json.loads(sys.argv[1]))))"
    )
    said, _ = _said([sys.executable, "-c", code, json.dumps(walls.to_dict())], environment)
    return said or "process"


def _said(command: list[str], environment: dict[str, str]) -> tuple[str, str]:
    """What a command says, and what is wrong with it: the last line of its complaints, or nothing."""
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_PROBE_S, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    complaints = done.stderr.strip().splitlines()
    wrong = (complaints or [f"it ended with status {done.returncode}"])[-1] if done.returncode else ""
    return done.stdout.strip(), wrong[:400]


def find_sandbox(device: str = "cpu", bubblewrap: str = "auto") -> Sandbox:
    """The strongest on this machine for a contestant on ``device`` (takes some tenths of a second). UserError as of
    `choose`.
    """
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.pathsep.join([os.path.dirname(package_folder()), *filter(None, sys.path)]),
    }
    readable = readable_paths(device, [])
    found = choose(device, readable, environment, bubblewrap=bubblewrap)
    if found.level:
        return found
    with OwnedFolder("sandbox") as folder:
        level = _own_level(Walls(str(folder.path), tuple(readable), package_folder(), device), environment)
    return Sandbox(level, None, found.unused)


def sandbox_level(device: str = "cpu") -> str:
    """Name of the strongest level on this machine for a contestant on ``device``."""
    return find_sandbox(device).level
