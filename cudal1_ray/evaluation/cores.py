"""CPU cores: those that one evaluator's contestants share, and the one that nothing but a measurement runs on."""

from __future__ import annotations

import fcntl
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .sandbox.process_watch import ProcessWatch
from .timing.pace import fastest_core


class Cores:
    """Reference and candidate run on the same cores, so that extra threads gain nothing; on CUDA they are not pinned.

    Two evaluators on one core would halve each other's pace while another core idles, so each marks its own by a lock
    file that all of them know; the kernel lets go of it when its holder dies. Where more evaluators than cores run,
    the late ones share one.

    Args:
        threads: how many cores are wanted. As many as there are, or more: nothing is pinned.
        device: "cpu", or another one.
        folder: of the lock files; empty: one of this user's, in the system's folder for temporary files.

    Attributes:
        numbers: of the cores; empty when contestants are not pinned.
    """

    def __init__(self, threads: int, device: str, folder: str = "") -> None:
        self._locks: list[int] = []
        self.numbers: list[int] = []
        available = sorted(os.sched_getaffinity(0))
        if device != "cpu" or threads >= len(available):
            return
        random.SystemRandom().shuffle(available)
        locks = _lock_folder(folder)
        for core in available:
            if len(self.numbers) < threads and locks is not None and self._lock(locks / str(core)):
                self.numbers.append(core)
        others = [core for core in available if core not in self.numbers]
        self.numbers = sorted(self.numbers + others[: threads - len(self.numbers)])

    def _lock(self, path: Path) -> bool:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._locks.append(lock)
        return True

    def close(self) -> None:
        """Leaves the cores to others; calling it twice is fine."""
        while self._locks:
            os.close(self._locks.pop())


def choose_measuring_core() -> int:
    """The fastest core at this time, which evaluators of a GPU keep free for launches: what runs on the other half of a
    core, as threads of one core are, changes how long a launch takes by tens of percent. -1 where there are too few.
    """
    available = os.sched_getaffinity(0)
    core = fastest_core(available)
    return core if len(available - _siblings(core)) >= 4 else -1


def leave_measuring_core(core: int) -> None:
    """This thread, and what it will start, keeps away from that core and its other half. -1: nothing changes."""
    rest = os.sched_getaffinity(0) - (_siblings(core) if core >= 0 else set())
    if rest:
        os.sched_setaffinity(0, rest)


@contextmanager
def launching_from_one_core(watches: Sequence[ProcessWatch], wanted: int) -> Iterator[int]:
    """Processes whose launches are compared do them on the same core: ``wanted``, or for -1 the fastest one now.

    They leave it in the end: to take a process apart that had a GPU takes a while, and would disturb whoever measures
    there next.
    """
    rest = os.sched_getaffinity(0)
    core = wanted if wanted >= 0 else fastest_core(rest)
    for watch in watches:
        watch.pin({core})
    try:
        yield core
    finally:
        for watch in watches:
            watch.pin(rest)


def _siblings(core: int) -> set[int]:
    """The core itself and those that share its units with it."""
    found = {core}
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
        for part in text.strip().split(","):
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    except (OSError, ValueError):
        pass
    return found


def _lock_folder(folder: str) -> Path | None:
    """None where no folder can be had that only this user writes to: then cores are taken by chance."""
    path = Path(folder or Path(tempfile.gettempdir()) / f"cudal1-cores-{os.getuid()}")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        return path if path.stat().st_uid == os.getuid() else None
    except OSError:
        return None
