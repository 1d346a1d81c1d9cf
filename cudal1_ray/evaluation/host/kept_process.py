"""A trusted process that is reused from problem to problem."""

from __future__ import annotations

from cudal1_ray.evaluation.exchange.messages import Forget
from cudal1_ray.evaluation.host.handles import ContestantHandle, ForkServer, Misbehaviour, ServerDied

# MiB of inputs and outputs above which a process is not kept: it then holds gigabytes, each of which takes a second to
# unmap.
_MOST_MIB = 1024


class KeptProcess:
    """One process of a role, started when it is first needed and again after its end.

    A context on a GPU and its libraries take half a second, and drivers make one context at a time. So where code is
    trusted the process `lives_on` from problem to problem; nothing of one problem should be left for the next, but
    nothing enforces that. Elsewhere it ends with its problem.
    """

    def __init__(self, server: ForkServer, role: str, *, lives_on: bool) -> None:
        self._server, self._role, self.lives_on = server, role, lives_on
        self._handle: ContestantHandle | None = None
        self._generation = 0
        self.used = False  # whether an earlier problem ran in the process

    def take(self) -> ContestantHandle:
        """Return the process, started if there is none; raise ServerDied if it cannot be started."""
        handle, server = self._handle, self._server
        if handle is None or self._generation != server.generation or not server.alive:
            self.drop()
            handle = self._handle = server.spawn(role=self._role, cores=[])
            self._generation = server.generation
        return handle

    def clear(self) -> None:
        """Ask the process to drop the last problem. End it unless it confirms, if it does not live on, or if it shared
        more than `_MOST_MIB`, which take longer to unmap than a new process takes to start.
        """
        if not self.lives_on or (self._handle is not None and self._handle.regions_mib > _MOST_MIB):
            self.drop()
        elif self._handle is not None and self._server.alive and self._generation == self._server.generation:
            try:
                self._handle.ask(Forget(), 60.0, doing="clearing up")
                self.used = True
            except (Misbehaviour, ServerDied):
                self.drop()

    def drop(self) -> None:
        """End the process; a second call does nothing."""
        handle, self._handle, self.used = self._handle, None, False
        if handle is not None:
            handle.close()
