"""The evaluator's side of the fork server: starts contestants, asks them under time and memory limits, ends them."""

from __future__ import annotations

import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any

import msgspec

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.evaluation.exchange.channel import Channel, ChannelClosed, ChannelTimeout, channel_pair
from cudal1_ray.evaluation.exchange.messages import read_answer
from cudal1_ray.evaluation.exchange.server_messages import Failure, Greeting, Kill, Limits, Request, Spawn, Walls
from cudal1_ray.evaluation.hardware import gpu_for_contestants
from cudal1_ray.evaluation.sandbox.memory_group import MemoryGroup, group_around
from cudal1_ray.evaluation.sandbox.process_watch import ProcessWatch, children
from cudal1_ray.evaluation.sandbox.walls import LEVELS, UNCONFINED, package_folder, readable_paths
from cudal1_ray.files import OwnedFolder
from cudal1_ray.source.text import line_without_text

# Threads that torch's pools may have for each of `evaluation.threads`: with 128 allowed in all, honest candidates ran
# with 30 of them and not with 36; with 640, not with 200.
_THREAD_POOLS = 4


class ServerDied(Exception):
    """The fork server ended: the evaluator's fault, never the candidate's."""


class Misbehaviour(Exception):
    """A contestant failed; `reason` is a name of reasons.py."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class NoAnswer(Misbehaviour):
    """A contestant's answer is one that the harness never gives."""

    def __init__(self, what: object) -> None:
        super().__init__("result_forgery", f"an answer that the harness never gives ({what!s:.400})")


class ForkServer:
    """A warm server process, started when it is needed and again after its death; not for several threads at once."""

    def __init__(self, config: EvaluationConfig, *, headers: str = "") -> None:
        """Prepare a server for `start`. `headers`: precompiled ones, for processes that build and see no GPU."""
        self.config, self._headers = config, headers
        self.level = ""  # the sandbox's level, chosen when a server starts first, and kept
        self.generation = 0
        self.device = "cpu" if headers or config.device == "cpu" else "cuda"
        self.process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._folder: OwnedFolder | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the server process unless it is alive.

        Raises:
            UserError: when the sandbox is weaker than required.
            ServerDied: when the server cannot start.
        """
        if self.alive:
            return
        self.close()
        chosen, required = self.level or self.config.sandbox, self.config.required_sandbox
        for name, level in (("sandbox", chosen or LEVELS[0]), ("required_sandbox", required)):
            if level not in LEVELS:
                raise UserError(f"evaluation.{name}: {level!r} is none of {', '.join(LEVELS)}")
        paths = [os.path.dirname(package_folder()), *(p for p in sys.path if p.endswith("-packages"))]
        visible, nodes = ("", ()) if self.device == "cpu" else gpu_for_contestants(self.config.device)
        environment = self._environment(paths) | {"CUDA_VISIBLE_DEVICES": visible}
        further = [*self.config.readable_paths, *([self._headers] if self._headers else [])]
        readable = readable_paths(self.device, further)
        self._folder = OwnedFolder("evaluation")
        for name in ("root", "scratch"):
            os.mkdir(self._folder.path / name)
        os.chmod(self._folder.path, 0o755)
        walls = Walls(str(self._folder.path / "root"), tuple(readable), package_folder(), self.device, nodes)
        self._channel, theirs = channel_pair()
        try:
            self.process = self._launch(theirs, environment)
        except OSError as error:
            raise ServerDied(f"the fork server could not be started: {error}") from error
        finally:
            theirs.close()
        try:
            self._channel.send(Greeting(walls, chosen))
            self.level = msgspec.json.decode(self._channel.receive(180.0), type=str)
        except (ChannelClosed, ChannelTimeout, ValueError, msgspec.MsgspecError) as error:
            self.close()
            raise ServerDied(f"the fork server did not come up: {error}") from error
        self.generation += 1
        if not self.level:
            self.close()
            raise UserError(
                "no level of the sandbox can be had here: it needs Linux on x86-64, with system-call filters (seccomp)"
            )
        if LEVELS.index(self.level) > LEVELS.index(required):
            self.close()
            raise UserError(
                f"evaluation.required_sandbox={required} cannot be had here, the strongest level is {self.level}: "
                "allow user namespaces (or run as root), or accept it by name: "
                f"evaluation.required_sandbox={self.level}"
                f"{', at which a candidate can write your files' if self.level in UNCONFINED else ''}"
            )

    def _launch(self, theirs: socket.socket, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        code = "import sys; from cudal1_ray.evaluation.inside.fork_server import main; main(int(sys.argv[1]))"
        command = [sys.executable, "-c", code, str(theirs.fileno())]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), cwd="/",
            env=environment, start_new_session=True,
        )  # fmt: skip

    def _environment(self, paths: list[str]) -> dict[str, str]:
        """Return a contestant's whole environment; from the evaluator's own it takes paths and the machine's bans."""
        threads = str(self.config.threads)
        names = (
            "PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDNN_PATH", "VIRTUAL_ENV",
            # What a machine forbids the evaluator it forbids candidates, too.
            "NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS", "TORCH_SYMM_MEM_DISABLE_MULTICAST",
        )  # fmt: skip
        environment = {name: os.environ[name] for name in names if name in os.environ}
        further = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        environment |= {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys([*paths, *further])),
            "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8",
            "USER": "contestant",
            # NumPy's library starts its threads on import, and a process with threads cannot enter namespaces.
            "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1",
            "NUMEXPR_NUM_THREADS": threads, "TORCHINDUCTOR_COMPILE_THREADS": "1",
            # Heap memory is kept and reused: page faults would otherwise be a large and uneven part of short calls.
            "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
            "MALLOC_ARENA_MAX": "2",
        }  # fmt: skip
        if self.device == "cpu":
            # Huge pages, where the kernel gives them on request: which small pages a process got makes elementwise code
            # faster or slower by some percent throughout its life. The first is for glibc (2.35), the other for torch.
            environment |= {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"}
        if self._headers:
            environment["CPATH"] = self._headers
        if self.config.cuda_arch_list:
            environment["TORCH_CUDA_ARCH_LIST"] = self.config.cuda_arch_list
        return environment

    def spawn(self, *, role: str, cores: list[int], streams: bool = False) -> ContestantHandle:
        """Start a contestant; raise ServerDied if that is impossible.

        `streams`: its code may run several streams on a GPU, so it gets the driver's default number of hardware queues,
        eight. Others get one: drivers make one context at a time, and a context with fewer queues sooner (on an H200 in
        half the time or less).
        """
        self.start()
        assert self._folder is not None
        channel, control = channel_pair()
        status_ours, status_theirs = socket.socketpair()
        scratch = tempfile.mkdtemp(dir=str(self._folder.path / "scratch"))
        limits = self.config.limits
        processes = limits.processes + _THREAD_POOLS * self.config.threads
        enforced = Limits(limits.memory_mib, processes, limits.files, limits.scratch_mib)
        request = Spawn(role, cores, enforced, scratch, queues=0 if streams else 1)
        try:
            supervisor = self._ask(request, (control.fileno(), status_theirs.fileno()))
        except ServerDied:
            channel.close()
            status_ours.close()
            raise
        finally:
            control.close()
            status_theirs.close()
        trusted = role in ("maker", "reference") and self.config.trust_problems
        return ContestantHandle(self, channel, status_ours, supervisor, scratch, trusted=trusted)

    def kill(self, supervisor: int) -> None:
        """End a contestant and all its descendants, and wait until they have ended."""
        if self.alive:
            with suppress(ServerDied):  # the kernel ended its children with it
                self._ask(Kill(supervisor))

    def _ask(self, request: Request, fds: tuple[int, ...] = ()) -> Any:
        if self._channel is None:
            raise ServerDied("no fork server")
        try:
            self._channel.send(request, fds)
            return msgspec.json.decode(self._channel.receive(60.0), type=request.answer)
        except (ChannelClosed, ChannelTimeout, ValueError, msgspec.MsgspecError) as error:
            self.close()
            raise ServerDied(str(error)) from error

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self.process is not None:
            try:
                self.process.wait(2.0)  # it ends by itself when its socket closes
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
            self.process = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None


class ContestantHandle:
    """One contestant, as the referee holds it. Its own failures raise Misbehaviour, others ServerDied."""

    def __init__(
        self, server: ForkServer, channel: Channel, status: socket.socket, supervisor: int, scratch: str,
        *, trusted: bool,
    ) -> None:  # fmt: skip
        self._trusted = trusted
        self.server, self.channel, self.supervisor, self.scratch = server, channel, supervisor, scratch
        self._status = status
        self._limits = server.config.limits
        self._next_look = self._looked = 0.0
        self._alone_s = math.inf  # seconds for which it may still work without a child process
        self.regions_mib = 0.0  # memory that the referee shares with it
        self.group: MemoryGroup | None = None
        try:
            place = msgspec.json.decode(self.channel.receive(60.0), type=int | Failure)
            if isinstance(place, Failure):
                raise ChannelClosed(f"{place.error}{self._limits.behind(place.kind)}")
            self.watch = ProcessWatch(children(supervisor)[0], supervisor)
            if not trusted:
                self.group = group_around(self.watch.pid)
            self.shares(0.0)
        except (ChannelClosed, ChannelTimeout, ValueError, msgspec.MsgspecError, IndexError, OSError) as error:
            self._end()
            raise ServerDied(f"a contestant did not come up: {error}") from error
        self.reads_memory = self._is_open(place)  # before any candidate's code runs there

    def shares(self, mib: float) -> None:
        """Note that the referee shares `mib` with it, which do not count as its own."""
        self.regions_mib = mib
        if self.group:  # two folders in memory of its own are bounded already
            self.group.limit(self._limits.memory_mib + 2 * self._limits.scratch_mib + mib)

    def _is_open(self, place: int) -> bool:
        try:
            return len(self.watch.read(place, 8)) == 8
        except OSError:
            return False

    def read(self, address: int, nbytes: int) -> bytearray:
        """Return `nbytes` of its memory from `address` on, unnoticed by it. Raise Misbehaviour where nothing is mapped,
        or where its memory is closed although it was readable at first.
        """
        try:
            return self.watch.read(address, nbytes)
        except ProcessLookupError:
            raise self.death() from None
        except (OSError, OverflowError, MemoryError) as error:
            raise Misbehaviour(
                "result_forgery", f"an output that cannot be read where it is said to lie ({error})"
            ) from None

    def ask(
        self, request: Request, timeout_s: float, *, doing: str, fds: tuple[int, ...] = (), alone_s: float = math.inf
    ) -> Any:
        """Return the answer, of the type that the request names; raise Misbehaviour for no answer in time, death, too
        much memory, a reported failure and any other answer. `alone_s`: seconds of the time in which no child process
        works on it; a compiler is one.
        """
        self._alone_s, self._looked = alone_s, time.monotonic()
        try:
            self.channel.send(request, fds)
            answer = read_answer(self.channel.receive(timeout_s, self._look), request)
        except ChannelTimeout:
            limit_s = alone_s if self._alone_s <= 0.0 else timeout_s
            raise Misbehaviour("timeout", f"no end of {doing} within {limit_s:.1f} s") from None
        except ChannelClosed:
            raise self.death() from None
        except UnicodeEncodeError as error:  # the request's: of a problem that nothing has parsed
            line, reason = line_without_text(error)
            raise Misbehaviour("runtime_error", f"in {doing}: line {line}: {reason}") from None
        except ValueError as error:
            raise NoAnswer(f"{doing}: {error}") from None
        if isinstance(answer, Failure):
            raise Misbehaviour(answer.kind, f"in {doing}: {answer.error:.4000}")
        return answer

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + 0.1
        used = self.watch.memory_mib() - self.regions_mib
        if used > self._limits.memory_mib and not self._trusted:
            raise Misbehaviour("memory_limit", f"{used:.0f} MiB of {self._limits.memory_mib} MiB allowed")
        # In namespaces the scratch is a file system of a fixed size.
        if not self._trusted and self.server.level != LEVELS[0] and self._files_mib() > self._limits.scratch_mib:
            raise Misbehaviour("resource_exhaustion", f"more than {self._limits.scratch_mib} MiB of files")
        family = self.watch.family()
        if len(family) > self._limits.processes:
            raise Misbehaviour("resource_exhaustion", f"more than {self._limits.processes} processes")
        self._alone_s, self._looked = self._alone_s - (0.0 if family else now - self._looked), now
        if self._alone_s <= 0.0:
            raise ChannelTimeout
        with suppress(ProcessLookupError):  # the closed channel will show that it is gone
            if not self._trusted and self.watch.instant().cpu > self._limits.cpu_s:
                raise Misbehaviour("timeout", f"more than {self._limits.cpu_s} s of CPU time")

    def _files_mib(self) -> float:
        """Return the MiB of disk that the files in its scratch take."""
        blocks = 0
        for folder, _, names in os.walk(self.scratch):
            for name in names:
                with suppress(OSError):  # it was removed meanwhile
                    blocks += os.lstat(os.path.join(folder, name)).st_blocks
        return blocks * 512 / 2**20

    def death(self) -> Exception:
        """Return the error for the contestant's end: a server's death, a limit, or its own crash."""
        self._status.settimeout(2.0)
        try:
            code = int(self._status.recv(64))
        except (OSError, ValueError):
            # The supervisor reported nothing: it died, too. Only the server's death or a kill from outside does that.
            return ServerDied("a contestant vanished together with its supervisor")
        if os.WIFSIGNALED(code):
            number = os.WTERMSIG(code)
            name = signal.Signals(number).name if number in signal.Signals.__members__.values() else str(number)
            if number == signal.SIGXCPU:
                return Misbehaviour("timeout", "CPU time limit")
            if number == signal.SIGXFSZ:
                return Misbehaviour("resource_exhaustion", "file size limit")
            if self.group and self.group.exceeded():
                most = self._limits.memory_mib
                return Misbehaviour("memory_limit", f"more than {most} MiB of {most} MiB allowed, at once")
            if number == signal.SIGKILL and not self.server.alive:
                return ServerDied("killed from outside")
            return Misbehaviour("crash", f"ended by {name}")
        return Misbehaviour("crash", f"the process ended itself with status {os.WEXITSTATUS(code)}")

    def close(self) -> None:
        """End the contestant and everything it started."""
        self._end()
        self.watch.close()

    def _end(self) -> None:
        self.server.kill(self.supervisor)
        if self.group:
            self.group.close()
        self.channel.close()
        self._status.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
