"""The fork server's own side: a process that has torch in memory and turns a request into a sandboxed contestant.

    server ──clone(new PID + mount namespace)──> supervisor (PID 1 in there) ──fork──> contestant

The server never sees a problem, an input or an expected output: it holds nothing worth stealing. It dies with the
evaluator (its socket closes), supervisors die with the server, and everything a contestant ever started dies with the
supervisor: it is the PID namespace's first process, or, without namespaces, the reaper of all orphans.
"""

from __future__ import annotations

import gc
import mmap
import os
import random
import select
import signal
import socket
import tempfile
import time
from contextlib import suppress
from typing import Any

from cudal1_ray.evaluation.exchange import server_messages as messages
from cudal1_ray.evaluation.exchange.channel import Channel, ChannelClosed
from cudal1_ray.evaluation.inside.executing import failure
from cudal1_ray.evaluation.inside.preloading import furnish_cache, preload
from cudal1_ray.evaluation.sandbox import kernel_calls as kernel
from cudal1_ray.evaluation.sandbox.process_watch import descendants
from cudal1_ray.evaluation.sandbox.walls import enter_root, furnish, give_way_in_need, lock_down, probe, set_limits

_MOST_OBJECTS, _MOST_BLOCKS, _MOST_PAGES = 4096, 32, 1024  # limits of a contestant's ballast


def main(fd: int) -> None:
    """Run the server process; `fd` is its socket to the evaluator."""
    channel = Channel(socket.socket(fileno=fd))
    try:
        greeting, _ = channel.receive_with_fds(0, messages.Greeting)
    except ChannelClosed:
        return
    walls = greeting.walls
    level = greeting.level or probe(walls)
    if not level:
        channel.send(level)
        return
    if level == "namespaces":
        enter_root(walls)  # before torch, which may start threads
    else:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    gc.disable()  # a collection looks at all that was imported by then: torch takes 0.1 CPU seconds less without any
    from cudal1_ray.evaluation.inside import roles  # torch comes in here

    triton_files = preload() if walls.device == "cuda" else {}
    gc.collect()
    gc.freeze()  # collections in contestants leave these pages shared
    gc.enable()
    try:
        channel.send(level)
    except ChannelClosed:  # the evaluator was interrupted meanwhile
        return
    _Server(channel, walls, level, roles, triton_files).run()


class _Server:
    def __init__(
        self, channel: Channel, walls: messages.Walls, level: str, roles: Any, triton_files: dict[str, bytes]
    ) -> None:
        self.channel, self.walls, self.level, self.roles = channel, walls, level, roles
        self.triton_files = triton_files
        self.supervisors: set[int] = set()

    def run(self) -> None:
        while True:
            ready, _, _ = select.select([self.channel], [], [], 0.5)
            self._reap()
            if not ready:
                continue
            try:
                request, fds = self.channel.receive_with_fds(4, messages.Spawn | messages.Kill)
                if isinstance(request, messages.Spawn):
                    self.channel.send(self._spawn(request, fds))
                else:
                    self._kill(request.supervisor)
                    self.channel.send(None)
                for fd in fds:
                    os.close(fd)
            except ChannelClosed:
                for supervisor in list(self.supervisors):
                    self._kill(supervisor)
                return

    def _spawn(self, request: messages.Spawn, fds: list[int]) -> int:
        if self.level == "namespaces":
            own = kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC
            supervisor = kernel.fork_into_namespaces(own)
        else:
            supervisor = os.fork()
        if supervisor == 0:
            status = 70
            try:
                status = self._supervise(request, fds)
            finally:
                os._exit(status)
        self.supervisors.add(supervisor)
        return supervisor

    def _supervise(self, request: messages.Spawn, fds: list[int]) -> int:
        """Furnish the child's namespace, start the contestant, wait for its end and report it."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        control, status = fds
        self.channel.close()
        if self.level == "namespaces":
            furnish(self.walls, request.limits.scratch_mib)
        else:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        child = os.fork()
        if child == 0:
            try:
                os.close(status)
                self._contest(request, control)
            except BaseException as error:
                os.write(2, f"contestant: {error!r}\n".encode())
            finally:
                os._exit(71)
        os.close(control)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # its memory is closed to the contestant
        pid = 0
        while pid != child:  # it inherits orphans, too
            pid, ended = os.waitpid(-1, 0)
        os.write(status, b"%d" % ended)
        if self.level != "namespaces":
            end_descendants(os.getpid())
        return 0

    def _contest(self, request: messages.Spawn, control: int) -> None:
        if self.level != "namespaces":
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        scratch = "/tmp" if self.level == "namespaces" else request.scratch
        os.chdir(scratch)
        null = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        for name in ("TMPDIR", "HOME"):
            os.environ[name] = scratch
        tempfile.tempdir = None  # torch looked it up in the server, where it is another folder
        for name, folder in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton"),
                             ("TORCH_EXTENSIONS_DIR", "extensions"), ("CUDA_CACHE_PATH", "cuda")):  # fmt: skip
            os.environ[name] = os.path.join(scratch, folder)
        furnish_cache(os.environ["TRITON_CACHE_DIR"], self.triton_files)
        if request.queues:
            os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(request.queues)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if request.cores:
            os.sched_setaffinity(0, request.cores)
        channel = Channel(socket.socket(fileno=control))
        try:
            self._confine(request, scratch)
        except BaseException as error:
            channel.send(failure(error))
            raise
        self.roles.play(request.role, channel, scratch)

    def _confine(self, request: messages.Spawn, scratch: str) -> None:
        set_limits(request.limits, self.walls.device, self.level)
        give_way_in_need()
        if self.level == "namespaces":
            _limit_process_ids(request.limits.processes)
        self.ballast = _ballast()
        lock_down(self.level, self.walls, scratch)

    def _kill(self, supervisor: int) -> None:
        """End a supervisor and all its descendants, and wait for their end."""
        if supervisor not in self.supervisors:
            return
        if self.level != "namespaces":
            end_descendants(supervisor)
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(supervisor, signal.SIGKILL)
            os.waitpid(supervisor, 0)
        self.supervisors.discard(supervisor)
        if self.level != "namespaces":
            for orphan in set(descendants(os.getpid())) - self._living():
                _end(orphan)

    def _living(self) -> set[int]:
        """Return the living supervisors and all their descendants."""
        return self.supervisors | {pid for supervisor in self.supervisors for pid in descendants(supervisor)}

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self.supervisors.discard(pid)


def _ballast() -> list[Any]:
    """Allocate a different amount of memory in each process: all forks of a server would otherwise have their objects
    in the same places, and code is some percent faster in one place than in another.
    """
    chance = random.SystemRandom()
    taken: list[Any] = [bytes(chance.randrange(1, 480)) for _ in range(chance.randrange(_MOST_OBJECTS))]
    taken += [bytearray(chance.randrange(512, 1 << 16)) for _ in range(chance.randrange(_MOST_BLOCKS))]
    taken.append(mmap.mmap(-1, mmap.PAGESIZE * chance.randrange(1, _MOST_PAGES)))
    return taken


def _limit_process_ids(most: int) -> None:
    """Bound the ids of this PID namespace, where the kernel allows it: a fork bomb then ends by itself, even root's."""
    with suppress(OSError), open("/proc/sys/kernel/pid_max", "w") as file:  # else RLIMIT_NPROC and the referee's count
        file.write(str(max(most, 301)))  # the kernel takes no less than 301


def end_descendants(pid: int, rounds: int = 50) -> None:
    """Kill all descendants of `pid`, repeatedly, until no new ones appear."""
    for _ in range(rounds):
        below = descendants(pid)
        if not below:
            return
        for child in below:
            _end(child)
        time.sleep(0.005)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
