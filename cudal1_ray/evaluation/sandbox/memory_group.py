"""Limits on memory that the kernel keeps: a control group (version 2) for each contestant, where one may be made."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

_PREFIX = "cudal1"
_numbers = count()


class MemoryGroup:
    """A control group that holds one process and everything it starts from then on. Beyond its limit the kernel ends
    all of them, and nothing else.
    """

    def __init__(self, parent: Path, pid: int) -> None:
        """Make a group below `parent` and move the process there; raise OSError where the kernel refuses a step."""
        self._folder = parent / f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        self._folder.mkdir()
        try:
            self._write("memory.oom.group", "1")
            with suppress(OSError):  # a kernel without swap
                self._write("memory.swap.max", "0")
            self._write("cgroup.procs", str(pid))
        except OSError:
            self.close()
            raise

    def limit(self, mib: float) -> None:
        """Bound the memory of all processes together, files in memory and what they share with others included."""
        self._write("memory.max", str(int(mib) << 20))

    def exceeded(self) -> bool:
        """Return whether the kernel has ended a process here for want of memory."""
        try:
            events = dict(line.split() for line in (self._folder / "memory.events").read_text().splitlines())
        except OSError:
            return False
        return int(events.get("oom_kill", 0)) > 0

    def close(self) -> None:
        """Remove the group; its processes were killed, but may take a moment to end."""
        for _ in range(50):
            with suppress(OSError):
                self._folder.rmdir()
            if not self._folder.exists():
                return
            time.sleep(0.01)

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)


def group_around(pid: int) -> MemoryGroup | None:
    """Return a new group that holds the process; None where this user may not make one."""
    parent = _delegated()
    try:
        return MemoryGroup(parent, pid) if parent else None
    except OSError:
        return None


@cache
def _delegated() -> Path | None:
    """Return the parent of this process's groups, without those that ended evaluators left in it."""
    parent = delegated_group()
    for left in parent.glob(f"{_PREFIX}-*-*") if parent else ():
        if not os.path.exists(f"/proc/{left.name.split('-')[1]}"):
            with suppress(OSError):
                left.rmdir()
    return parent


def delegated_group(root: Path = Path("/sys/fs/cgroup"), own: str = "/proc/self/cgroup") -> Path | None:
    """Return the nearest control group, this process's or one above it, below which this user may make groups with a
    limit on memory; None where there is none.
    """
    try:
        line = next(line for line in Path(own).read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    lowest = root / line.removeprefix("0::").strip("/")
    for group in (lowest, *lowest.parents):
        if not group.is_relative_to(root):
            break
        if not (os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)):
            continue
        children = group / "cgroup.subtree_control"
        with suppress(OSError):
            if "memory" not in children.read_text().split():
                children.write_text("+memory")  # refused while processes are in the group itself
            return group
    return None
