"""CPU cores: those that one evaluator's contestants share, and those that are reserved for measurements."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from cudal1_ray.evaluation.sandbox.process_watch import ProcessWatch
from cudal1_ray.evaluation.timing.pace import fastest_core, move_to, on_core, pace
from cudal1_ray.files import lock_file

# Most cores that `measuring_cores` keeps free for launches.
_MOST_MEASURING = 3
# Fewest cores that `measuring_cores` leaves for everything else.
_FEWEST_LEFT = 4
# Longest pace of a fast core, as a multiple of the shortest pace seen; a busy sibling makes the pace 1.5 to 2 times it.
_AS_FAST = 1.25


class Cores:
    """The cores that an evaluator has taken, locked by files that all evaluators of this user on this machine read; the
    kernel releases the locks of a process that dies. Without a folder of this user's own, no core is taken.

    Args:
        prefix: start of the lock files' names; each purpose has its own.
        folder: where the lock files lie; empty: this user's folder in the system's folder for temporary files.

    Attributes:
        numbers: the cores, in ascending order.
    """

    def __init__(self, prefix: str = "", folder: str = "") -> None:
        self.numbers: list[int] = []
        self._locks: list[int] = []
        self._prefix = ""
        path = Path(folder or Path(tempfile.gettempdir()) / f"cudal1-cores-{os.getuid()}")
        with suppress(OSError):
            path.mkdir(mode=0o700, exist_ok=True)
            if path.stat().st_uid == os.getuid():
                self._prefix = f"{path}/{prefix}"

    def take(self, core: int) -> bool:
        """Lock a core; return False where another evaluator holds it."""
        lock = self._locked(core, shared=False)
        if lock is not None:
            self._locks.append(lock)
            self.numbers = sorted([*self.numbers, core])
        return lock is not None

    def taken(self, cores: Iterable[int]) -> set[int]:
        """Return those of `cores` that any evaluator has locked."""
        taken = set()
        for core in cores:
            if self._prefix and os.path.exists(f"{self._prefix}{core}"):
                lock = self._locked(core, shared=True)
                if lock is None:
                    taken.add(core)
                else:
                    os.close(lock)
        return taken

    def _locked(self, core: int, *, shared: bool) -> int | None:
        if not self._prefix:
            return None
        with suppress(OSError):
            lock = os.open(f"{self._prefix}{core}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if lock_file(lock, shared=shared, wait=False):
                return lock
            os.close(lock)
        return None

    def close(self) -> None:
        """Release the cores; a second call does nothing."""
        while self._locks:
            os.close(self._locks.pop())


def shared_cores(threads: int, device: str, folder: str = "") -> Cores:
    """Take cores on which reference and candidate run, so that extra threads gain nothing. Take none on CUDA, and none
    when at least as many threads as available cores are wanted.

    Each evaluator takes its own cores: two evaluators on one core would halve each other's pace while another core
    idles. Where there are more evaluators than cores, the later ones share a core.
    """
    cores, available = Cores(folder=folder), list(os.sched_getaffinity(0))
    if device != "cpu" or threads >= len(available):
        return cores
    random.SystemRandom().shuffle(available)
    for core in available:
        if len(cores.numbers) < threads:
            cores.take(core)
    others = [core for core in available if core not in cores.numbers]
    cores.numbers = sorted(cores.numbers + others[: threads - len(cores.numbers)])
    return cores


def measuring_cores(folder: str = "") -> Cores:
    """Take the cores that are fastest now for the launches of a GPU's evaluators, which keep the cores' siblings free,
    too: work on a sibling changes a launch's time by tens of percent. Take several, since a virtual machine's core may
    be half of a busy core at one time and a whole one at another; take none where there are too few. Leave the cores
    that another GPU's evaluators have taken.
    """
    cores, available = Cores("measuring-", folder), os.sched_getaffinity(0)
    left = available - _with_siblings(cores.taken(available))
    for _ in range(min(_MOST_MEASURING, len(left) // 5)):
        core = fastest_core(left)
        left = left - _siblings(core)
        if len(left) >= _FEWEST_LEFT:
            cores.take(core)
    return cores


def leave_measuring_cores(cores: Iterable[int] = (), folder: str = "") -> None:
    """Keep this thread, and what it starts, off `cores`, off all cores that evaluators keep free for launches, and off
    the siblings of both, unless that would leave no core.
    """
    available = os.sched_getaffinity(0)
    taken = Cores("measuring-", folder).taken(available)
    for spared in (taken.union(cores), set(cores)):
        if rest := available - _with_siblings(spared):
            os.sched_setaffinity(0, rest)
            return


class LaunchCore:
    """The core from which the processes in a comparison launch, and on which their referee runs. A context manager: at
    its end the processes leave the core, since ending a process with a GPU takes long and would disturb the next
    measurement there.

    Args:
        watches: the processes that are pinned.
        cores: the cores to choose from; empty: no process is pinned.
    """

    _quickest_s = 1.0  # shortest pace that this process has seen on any core, seconds

    def __init__(self, watches: Sequence[ProcessWatch], cores: Sequence[int]) -> None:
        self._watches, self._cores, self._rest = watches if cores else [], list(cores), os.sched_getaffinity(0)
        self.number = random.choice(self._cores) if cores else -1
        self._paces_s: list[float] = []

    @property
    def pace_s(self) -> float:
        """Return the median of `pace` over the chosen cores, in seconds; 0.0 where there was no choice."""
        return median(self._paces_s) if self._paces_s else 0.0

    def __enter__(self) -> LaunchCore:
        self._pin({self.number})
        return self

    def __exit__(self, *_: object) -> None:
        self._pin(self._rest)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Keep the calling thread on the processes' core, at first the fastest one, to measure that core's pace."""
        with on_core(self.number):
            self._choose(enough_s=0.0)
            yield

    def stay_fast(self) -> None:
        """Move all to a faster core if this one is slow now and another is not; call it within `shared`, between two
        batches.
        """
        self._choose(enough_s=_AS_FAST * LaunchCore._quickest_s)

    def _choose(self, enough_s: float) -> None:
        """Move to the first core with a pace of at most `enough_s`, the current one tried first, or to the fastest."""
        paces: dict[int, float] = {}
        others = [core for core in self._cores if core != self.number]
        if not others:
            return
        for core in (self.number, *random.sample(others, len(others))):
            if core != self.number:
                move_to(core)
            paces[core] = pace()
            if paces[core] <= enough_s:
                break
        fastest = min(paces, key=lambda core: paces[core])
        LaunchCore._quickest_s = min(paces[fastest], LaunchCore._quickest_s)
        self._paces_s.append(paces[fastest])
        if len(paces) > 1:
            move_to(fastest)
        if fastest != self.number:
            self.number = fastest
            self._pin({fastest})

    def _pin(self, cores: set[int]) -> None:
        for watch in self._watches:
            watch.pin(cores)


def _siblings(core: int) -> set[int]:
    """Return the core itself and those that share its execution units."""
    siblings = {core}
    with suppress(OSError, ValueError):
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
        for part in text.strip().split(","):
            first, _, last = part.partition("-")
            siblings |= set(range(int(first), int(last or first) + 1))
    return siblings


def _with_siblings(cores: Iterable[int]) -> set[int]:
    return set().union(*map(_siblings, cores))
