"""The kernel's records of a contestant, read from outside: the contestant cannot forge any of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from cudal1_ray.evaluation.sandbox.kernel_calls import process_cpu_clock, read_memory

# Niceness of the processes that are measured, and of the thread that measures.
HURRIED = -15


@dataclass(frozen=True)
class Instant:
    """Clocks of one contestant at one moment, all in seconds."""

    wall: float
    cpu: float  # of all its threads
    waiting: float  # time for which its main thread, or the thread that reads these clocks, was ready but had no core


class ProcessWatch:
    """Reads one process and its descendants. `supervisor` is the parent that inherits orphans."""

    def __init__(self, pid: int, supervisor: int) -> None:
        self.pid, self.supervisor = pid, supervisor
        self._clock = process_cpu_clock(pid)
        self._schedstats: list[int] = []
        for path in (f"/proc/{pid}/schedstat", f"/proc/self/task/{threading.get_native_id()}/schedstat"):
            with suppress(OSError):  # a kernel without scheduler statistics: no time is forgiven
                self._schedstats.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def instant(self) -> Instant:
        """Return the process's clocks at this moment; raise ProcessLookupError if it is gone."""
        try:
            cpu = time.clock_gettime(self._clock)
            waiting = sum(int(os.pread(fd, 128, 0).split()[1]) for fd in self._schedstats) * 1e-9
        except (OSError, IndexError, ValueError) as error:
            raise ProcessLookupError(str(error)) from error
        return Instant(time.perf_counter(), cpu, waiting)

    def read(self, address: int, nbytes: int) -> bytearray:
        """Return `nbytes` of its memory from `address` on; raise what `read_memory` raises."""
        return read_memory(self.pid, address, nbytes)

    def pin(self, cores: set[int]) -> None:
        """Confine its main thread to `cores`, where that is allowed."""
        with suppress(OSError):
            os.sched_setaffinity(self.pid, cores)

    def prioritise(self) -> None:
        """Give its main thread precedence over ordinary processes; change nothing where that is not allowed."""
        _set_priority(self.pid, HURRIED)

    def memory_mib(self) -> float:
        """Return the resident MiB of the contestant and its descendants, with shared memory, without files."""
        status = [status_of(pid) for pid in (self.pid, *self.family())]
        return sum(int(of.get(name, "0").split()[0]) for of in status for name in ("RssAnon", "RssShmem")) / 1024

    def family(self) -> list[int]:
        """Return every living process below the supervisor, except the contestant itself."""
        return [pid for pid in descendants(self.supervisor) if pid != self.pid]

    def seccomp_filters(self) -> int:
        """Return how many seccomp filters bind the contestant; -1 where this kernel does not report it."""
        return int(status_of(self.pid).get("Seccomp_filters", -1))

    def close(self) -> None:
        for fd in self._schedstats:
            os.close(fd)
        self._schedstats = []


@contextmanager
def in_a_hurry() -> Iterator[None]:
    """Give the calling thread precedence over ordinary processes within the block, where that is allowed."""
    thread = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, thread)
    _set_priority(thread, HURRIED)
    try:
        yield
    finally:
        _set_priority(thread, before)


def _set_priority(thread: int, value: int) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, value)


def status_of(pid: int) -> dict[str, str]:
    """Return the fields of /proc/PID/status; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    except OSError:
        return {}


def descendants(pid: int, most: int = 4096) -> list[int]:
    """Return living descendants of `pid`, nearest first, at most `most` of them; zombies are left out."""
    living: list[int] = []
    queue = [pid]
    while queue and len(living) < most:
        below = [child for child in children(queue.pop(0)) if _stat(child)[:1] not in ([], ["Z"], ["X"])]
        living += below
        queue += below
    return living


def children(pid: int) -> list[int]:
    """Return the direct children of every thread of `pid`; empty when it is gone."""
    below: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                below += [int(child) for child in file.read().split()]
        return below
    except FileNotFoundError:  # it is gone, or this kernel lists no children
        everything = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [other for other in everything if _stat(other)[1:2] == [str(pid)]]
    except OSError:
        return below


def _stat(pid: int) -> list[str]:
    """Return state, parent and what follows them in /proc/PID/stat; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
