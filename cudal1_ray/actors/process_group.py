"""A process group for Ray's own processes, so that a signal to the group of the command does not end Ray as well.

`timeout`, shells and job runners send SIGTERM to whole process groups. A run closes with its last step and a
checkpoint, for which it needs its actors; Ray has no setting for the group of the processes that it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Holds a group open, and ends with the process that started it.
_HOLDER = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


@contextmanager
def separate_group() -> Iterator[None]:
    """Start the processes of this context in a process group of their own.

    A process is born into the group of its parent: this process joins a new group within the context, and returns to
    its own at the end. In between, Ctrl-C and signals to its own group do not reach it. Where it leads a session (a
    service, a container's first process) it cannot leave its group, and nothing changes.
    """
    if os.getsid(0) == os.getpid():
        yield
        return
    own = os.getpgrp()
    with subprocess.Popen(_HOLDER, stdin=subprocess.PIPE, process_group=0) as holder:  # ends when its input is closed
        os.setpgid(0, holder.pid)
        try:
            yield
        finally:
            _return_to(own)


def _return_to(group: int) -> None:
    """Join a process group; lead one where it is gone, since this process was the last one in it."""
    try:
        os.setpgid(0, group)
    except PermissionError:
        os.setpgid(0, 0)
