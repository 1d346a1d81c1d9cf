"""The walls around a contestant, from the strongest that this machine allows.

==========  ==================================================================================================
level       what it means
==========  ==================================================================================================
namespaces  own user, mount, PID, network, IPC and UTS namespaces; a root of read-only binds, private /tmp and
            /dev/shm in memory, empty network; no capabilities; seccomp; Landlock where there is one; limits
landlock    no namespaces (most containers): Landlock file lists, seccomp (no signals, no sockets), limits
seccomp     no Landlock either: seccomp and limits; files are as readable as to this user
process     limits, scrubbed environment and a private process group only
==========  ==================================================================================================

Neither root nor any external program is needed; as root, contestants run as nobody. Nothing is silently weaker than it
says: the level is probed by entering it, and `EvaluationConfig.required_sandbox` refuses anything below.
"""

from __future__ import annotations

import glob
import os
import resource
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any

from . import kernel_calls as kernel
from .landlock import landlock_version, restrict_files
from .seccomp import install_base_filter

LEVELS = ("namespaces", "landlock", "seccomp", "process")
_NOBODY = 65534
_SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32"]
_ETC = [
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "passwd",
    "group",
    "nsswitch.conf",
    "localtime",
]
_DEVICES = ["null", "zero", "full", "random", "urandom"]
_SCRATCH = "/tmp"  # private to each contestant at the level of namespaces; a checkout or an environment may lie there


@dataclass(frozen=True)
class Walls:
    """What a fork server is told about the sandbox of its contestants."""

    root: str  # an empty folder that becomes the mount point of the new root
    readable: tuple[str, ...]  # folders and files that contestants may read
    package: str  # this package's own folder: readable while the server starts, hidden from contestants
    device: str  # cpu or cuda

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Walls:
        return cls(**{**data, "readable": tuple(data["readable"])})


def readable_paths(device: str, further: list[str]) -> list[str]:
    """System, Python and its packages, and what the configuration adds; never the folder this package lies in."""
    ours = os.path.dirname(package_folder())
    paths = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC), sys.prefix, sys.base_prefix]
    from_environment = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for entry in sys.path:
        if os.path.basename(entry).endswith("-packages") or entry in from_environment:
            if entry and os.path.isdir(entry) and os.path.realpath(entry) != ours:
                paths.append(entry)
    paths += ["/sys"] if device == "cuda" else ["/sys/devices/system"]
    if device == "cuda":
        paths += ["/opt/cuda", "/opt/nvidia"]
    paths += further
    return [path for path in dict.fromkeys(map(os.path.abspath, paths)) if os.path.lexists(path) and path != "/"]


def package_folder() -> str:
    """The folder of the whole project package."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def enter_root(walls: Walls) -> None:
    """Gives this single-threaded process the namespaces and the root of that level. OSError if refused."""
    as_root = os.geteuid() == 0
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    if as_root:
        kernel.unshare(flags)  # binds first, while every path can still be reached; then nobody's rights only
        _build_root(walls)
        _enter_user_namespace(_NOBODY, 0)
    else:
        _enter_user_namespace(os.geteuid(), flags)
        _build_root(walls)


def _enter_user_namespace(outer: int, flags: int) -> None:
    """Become root of a new user namespace that is user ``outer`` outside; a helper outside writes the maps."""
    here, now = os.pipe(), os.pipe()
    pid, group = os.getpid(), outer if outer == _NOBODY else os.getegid()
    helper = os.fork()
    if helper == 0:
        status = 1
        try:
            os.close(now[1])
            os.read(now[0], 1)
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"0 {outer} 1"),
                ("gid_map", f"0 {group} 1"),
            ):
                with open(f"/proc/{pid}/{name}", "w") as file:
                    file.write(text)
            status = 0
        finally:
            os._exit(status)
    try:
        os.close(now[0])
        kernel.unshare(flags | kernel.CLONE_NEWUSER)
        os.write(now[1], b"x")
    finally:
        os.close(now[1])
        _, status = os.waitpid(helper, 0)
        os.close(here[0]), os.close(here[1])
    if status:
        raise OSError(1, "the user namespace could not be mapped")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _build_root(walls: Walls) -> None:
    root = walls.root
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=16m,mode=755")
    paths = [*walls.readable, walls.package]
    for path in paths:
        if not _in_scratch(path):
            _bind(path, root)
    for path in ("tmp", "dev/shm", "proc"):
        os.makedirs(f"{root}/{path}", exist_ok=True)
    kernel.make_read_only(root)
    # Device nodes and /proc must stay usable, so they come after the flags; the folder for them is on a small tmpfs.
    kernel.mount("tmpfs", f"{root}/dev", "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    os.makedirs(f"{root}/dev/shm", exist_ok=True)
    names = [f"/dev/{name}" for name in _DEVICES]
    if walls.device == "cuda":
        names += [*glob.glob("/dev/nvidia*"), *glob.glob("/dev/dxg")]
    for path in names:
        if os.path.exists(path):
            _bind(path, root)
    for link, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
                         ("stderr", "/proc/self/fd/2")):  # fmt: skip
        os.symlink(target, f"{root}/dev/{link}")
    kernel.mount("/proc", f"{root}/proc", None, kernel.MS_BIND | kernel.MS_REC)
    kernel.mount("tmpfs", f"{root}{_SCRATCH}", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=64m,mode=1777")
    for path in filter(_in_scratch, paths):
        _bind(path, root)
        if os.path.ismount(root + path):
            kernel.make_read_only(root + path)
    kernel.pivot_root(root)


def _in_scratch(path: str) -> bool:
    return path.startswith(f"{_SCRATCH}/")


def _bind(path: str, root: str, source: str = "") -> None:
    """The same path inside the new root: a link stays a link, the rest is bound. ``source``: where it is found, if not
    there.
    """
    inside, source = root + path, source or path
    if os.path.lexists(inside):
        return
    os.makedirs(os.path.dirname(inside), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), inside)
        return
    if os.path.isdir(source):
        os.makedirs(inside, exist_ok=True)
    else:
        os.close(os.open(inside, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source, inside, None, kernel.MS_BIND | kernel.MS_REC)


def furnish(walls: Walls, scratch_mib: int) -> None:
    """In a contestant's own mount and PID namespace: private /proc, /tmp and /dev/shm; the harness's files hidden."""
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    # What lies in there is covered by what comes over it; who has it open can still bind it.
    below = [path for path in walls.readable if _in_scratch(path) and os.path.exists(path)]
    found = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in below}
    kernel.mount("tmpfs", _SCRATCH, "tmpfs", flags, f"size={scratch_mib}m,mode=1777,nr_inodes=100k")
    for path, fd in found.items():
        _bind(path, "", f"/proc/self/fd/{fd}")
        os.close(fd)
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", flags, f"size={scratch_mib}m,mode=1777")
    if os.path.isdir(walls.package):  # it may lie in a folder that is not there any more
        kernel.mount("tmpfs", walls.package, "tmpfs", flags | kernel.MS_RDONLY, "size=4k,mode=755")


def set_limits(limits: dict[str, Any], device: str) -> None:
    """rlimits of this process. None on CPU time: it makes the kernel's CPU clock coarse, so the referee counts that.

    On CUDA the driver reserves address space at will: there only the referee counts memory.
    """
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits["files"],
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_FSIZE: limits["scratch_mib"] << 20,
        resource.RLIMIT_MEMLOCK: 64 << 20 if device == "cpu" else resource.RLIM_INFINITY,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if device == "cpu":
        wanted[resource.RLIMIT_DATA] = (limits["memory_mib"] << 20) + _data_bytes()
    for name, value in wanted.items():
        _, hard = resource.getrlimit(name)
        if hard != resource.RLIM_INFINITY and (value == resource.RLIM_INFINITY or value > hard):
            value = hard
        resource.setrlimit(name, (value, value))


def _data_bytes() -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 0


def lock_down(level: str, walls: Walls, scratch: str) -> None:
    """The last steps in a contestant: it can never take any of them back. OSError when one of the level is refused."""
    if level != "process":
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if level == "namespaces":
        kernel.drop_capabilities()
    elif os.geteuid() == 0 and level != "process":
        kernel.drop_capabilities()
    # The CUDA driver gives its threads names, which is done by writing to /proc.
    settable = ["/proc"] if walls.device == "cuda" else []
    if level == "namespaces" and landlock_version():
        restrict_files(["/"], [_SCRATCH, "/dev"], settable)
    elif level == "landlock":
        devices = [f"/dev/{name}" for name in _DEVICES]
        if walls.device == "cuda":
            devices += glob.glob("/dev/nvidia*")
        restrict_files([*walls.readable, "/proc", "/sys"], [scratch, *devices], settable)
    if level in ("namespaces", "landlock", "seccomp"):
        install_base_filter(isolated=level == "namespaces", device=walls.device)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1 if level == "namespaces" else 0)


def probe(walls: Walls) -> str:
    """The strongest level that works here, found by entering each in a child process that ends at once."""
    for level in LEVELS:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            status = 1
            try:
                status = 0 if _try_level(level, walls) else 1
            except BaseException:  # whatever a kernel answers: the level is not available
                status = 1
            finally:
                os._exit(status)
        if os.waitpid(child, 0)[1] == 0:
            return level
    return "process"


def _try_level(level: str, walls: Walls) -> bool:
    if level != "namespaces":
        lock_down(level, walls, _SCRATCH)
        return True
    enter_root(walls)
    child = kernel.fork_into_namespaces(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS)
    if child == 0:
        status = 1
        try:
            furnish(walls, 1)
            lock_down(level, walls, _SCRATCH)
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def sandbox_level(device: str = "cpu") -> str:
    """Name of the strongest level on this machine for a contestant on ``device`` (takes some milliseconds)."""
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        walls = Walls(root, tuple(readable_paths(device, [])), package_folder(), device)
        code = (
            "import json,sys; from cudal1_ray.evaluation.sandbox.walls import Walls, probe;"
            "print(probe(Walls.from_dict(json.loads(sys.argv[1]))))"
        )
        import json

        paths = os.pathsep.join([os.path.dirname(package_folder()), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(walls.to_dict())],
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": paths}, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
    return done.stdout.strip() or "process"
