"""Runs a command as a user without any rights, for tests that root runs: python as_other_user.py FORBID COMMAND...

FORBID=1: forbid user namespaces, as many machines do, so that only a program with root's rights could make one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import cudal1_ray
from cudal1_ray.evaluation.sandbox import kernel_calls as kernel

OTHER_USER_ID = 4321


def main(forbid: bool, command: list[str]) -> None:
    if forbid:
        _forbid_user_namespaces()
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    _open([sys.prefix, sys.base_prefix, str(Path(cudal1_ray.__file__).parent), str(Path(__file__).parents[2])])
    os.setgroups([])
    os.setresgid(OTHER_USER_ID, OTHER_USER_ID, OTHER_USER_ID)
    os.setresuid(OTHER_USER_ID, OTHER_USER_ID, OTHER_USER_ID)
    os.execvp(command[0], command)


def _forbid_user_namespaces() -> None:
    """Enter a user namespace that maps every ID to itself and in which no other namespace can be made."""
    pid = os.getpid()
    here, now = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(now[1])
        os.read(now[0], 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{name}").write_text("0 0 65537")
        os.write(here[1], b"x")
        os._exit(0)
    kernel.unshare(kernel.CLONE_NEWUSER)
    os.write(now[1], b"x")
    os.read(here[0], 1)
    os.setresgid(0, 0, 0), os.setresuid(0, 0, 0)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def _open(needed: list[str]) -> None:
    """Replace a folder above `needed` ones that is closed to others by an open folder that holds only these."""
    needed = sorted(os.path.realpath(path) for path in needed)  # a path within another comes after it
    closed = {folder for path in needed for folder in map(str, Path(path).parents) if not os.stat(folder).st_mode & 1}
    for folder in sorted(closed):
        held = {path: os.open(path, os.O_PATH) for path in needed if path.startswith(f"{folder}/")}
        kernel.mount("tmpfs", folder, "tmpfs", 0, "mode=755")
        for path, fd in held.items():
            os.makedirs(path, exist_ok=True)
            kernel.mount(f"/proc/self/fd/{fd}", path, None, kernel.MS_BIND | kernel.MS_REC)
            os.close(fd)


def command(*words: str, forbid: bool = False) -> list[str]:
    return [sys.executable, __file__, str(int(forbid)), *words]


def folder() -> str:
    """Return an empty folder that the other user owns and the caller removes."""
    path = tempfile.mkdtemp(prefix="other_user-")
    os.chown(path, OTHER_USER_ID, OTHER_USER_ID)
    return path


if __name__ == "__main__":
    main(sys.argv[1] == "1", sys.argv[2:])
