"""The processes below another one, while they come and go: any of them may end between two looks at it."""

from __future__ import annotations

import contextlib

import psutil


def living_below(pid: int) -> dict[psutil.Process, str]:
    """Return every process below the given one, and its command line.

    Left out are those that have ended, waited for or not (psutil raises for a zombie's command line), and Ray's own
    agents, which look after their raylet only now and then.
    """
    processes = {}
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if "Agent" not in line:
                processes[process] = line
    return processes


def runs(pid: int) -> bool:
    """Return whether a process has not ended; one that ended and is not waited for has."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def kill_actors(pid: int, class_name: str) -> int:
    """Kill every actor of the class, after which Ray names it, below the process; return how many there were."""
    hit = 0
    for process, line in living_below(pid).items():
        if f"ray::{class_name}" in line:
            with contextlib.suppress(psutil.Error):
                process.kill()
                hit += 1
    return hit
