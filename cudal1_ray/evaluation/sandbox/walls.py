"""The walls around a contestant, from the strongest that this machine allows.

==========  ==================================================================================================
level       what it means
==========  ==================================================================================================
namespaces  own user, mount, PID, network, IPC and UTS namespaces; a root of read-only binds, private /tmp and
            /dev/shm in memory, empty network; no capabilities; seccomp; Landlock where there is one; limits
landlock    no namespaces (most containers): Landlock file lists, seccomp (no signals, no sockets), limits
seccomp     no Landlock either: seccomp and limits; files and processes are as open as to this user
==========  ==================================================================================================

Neither root's rights nor any external program is needed; as root, contestants run as user 65534. No level is silently
weaker than stated: it is probed by entering it, and `EvaluationConfig.required_sandbox` refuses a weaker one.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress

from cudal1_ray.evaluation.exchange.server_messages import Limits, Walls
from cudal1_ray.evaluation.sandbox import kernel_calls as kernel
from cudal1_ray.evaluation.sandbox.landlock import landlock_version, restrict_files
from cudal1_ray.evaluation.sandbox.process_watch import status_of
from cudal1_ray.evaluation.sandbox.root import SCRATCH, build_root, device_nodes, layout, put
from cudal1_ray.evaluation.sandbox.seccomp import install_base_filter

# Levels of the sandbox, strongest first.
LEVELS = ("namespaces", "landlock", "seccomp")
# Levels at which a contestant can write whatever this user can.
UNCONFINED = ("seccomp",)
# The user that owns nothing, on every Linux.
_WITHOUT_RIGHTS = 65534
_SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32"]
_ETC = ["alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "nsswitch.conf", "localtime"]


def readable_paths(device: str, further: list[str]) -> list[str]:
    """Return the paths of the system, Python and its packages, and `further` ones; never the folder of this package."""
    ours = os.path.dirname(package_folder())
    paths = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC), sys.prefix, sys.base_prefix]
    from_environment = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for entry in sys.path:
        if os.path.basename(entry).endswith("-packages") or entry in from_environment:
            if entry and os.path.isdir(entry) and os.path.realpath(entry) != ours:
                paths.append(entry)
    paths += ["/sys", "/opt/cuda", "/opt/nvidia"] if device == "cuda" else ["/sys/devices/system"]
    paths += further
    return [path for path in dict.fromkeys(map(os.path.abspath, paths)) if os.path.lexists(path) and path != "/"]


def package_folder() -> str:
    """Return the folder of the whole project package."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def enter_root(walls: Walls) -> None:
    """Move this single-threaded process into the level's namespaces and root; raise OSError if refused."""
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    paths = [*walls.readable, walls.package]
    if os.geteuid() == 0:
        kernel.unshare(flags)  # binds first, while every path is reachable; afterwards drops root's rights
        build_root(walls.root, paths, walls.nodes)
        _enter_user_namespace(_WITHOUT_RIGHTS, 0)
    else:
        _enter_user_namespace(os.geteuid(), flags)
        build_root(walls.root, paths, walls.nodes)


def _enter_user_namespace(outer: int, flags: int) -> None:
    """Become root of a new user namespace that is user `outer` outside; a helper outside writes the maps."""
    now = os.pipe()
    pid, group = os.getpid(), outer if outer == _WITHOUT_RIGHTS else os.getegid()
    helper = os.fork()
    if helper == 0:
        status = 1
        try:
            os.close(now[1])
            os.read(now[0], 1)
            for name, text in (("setgroups", "deny"), ("uid_map", f"0 {outer} 1"), ("gid_map", f"0 {group} 1")):
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
    if status:
        raise OSError(1, "the user namespace could not be mapped")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def furnish(walls: Walls, scratch_mib: int) -> None:
    """Mount a private /proc, /tmp and /dev/shm in a contestant's own namespaces, and hide the harness's files."""
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    # Later mounts cover what lies below SCRATCH, which can still be bound through an open descriptor.
    below = [place for place in layout(walls.readable) if place.in_scratch and os.path.lexists(place.path)]
    opened = [-1 if place.target else os.open(place.path, os.O_PATH | os.O_CLOEXEC) for place in below]
    kernel.mount("tmpfs", SCRATCH, "tmpfs", flags, f"size={scratch_mib}m,mode=1777,nr_inodes=100k")
    for place, fd in zip(below, opened, strict=True):
        put(place, "", f"/proc/self/fd/{fd}")
        if fd >= 0:
            os.close(fd)
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", flags, f"size={scratch_mib}m,mode=1777")
    if os.path.isdir(walls.package):  # it may lie in a folder that is covered now
        kernel.mount("tmpfs", walls.package, "tmpfs", flags | kernel.MS_RDONLY, "size=4k,mode=755")


def set_limits(limits: Limits, device: str, level: str) -> None:
    """Set this process's rlimits; none on CPU time, since that would make the kernel's CPU clock coarse: the referee
    counts it.

    The kernel counts all threads of a user: without a user namespace of its own, the limit is added to the threads that
    exist, such as Ray's and an inference engine's. On CUDA the driver reserves address space freely, so only the
    referee counts memory there.
    """
    values = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_NPROC: limits.processes + (0 if level == "namespaces" else threads_of_user()),
        resource.RLIMIT_FSIZE: limits.scratch_mib << 20,
        resource.RLIMIT_MEMLOCK: 64 << 20 if device == "cpu" else resource.RLIM_INFINITY,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if device == "cpu":
        values[resource.RLIMIT_DATA] = (limits.memory_mib << 20) + (
            int(status_of(os.getpid())["VmData"].split()[0]) << 10
        )
    for name, value in values.items():
        _, hard = resource.getrlimit(name)
        if hard != resource.RLIM_INFINITY and (value == resource.RLIM_INFINITY or value > hard):
            value = hard
        resource.setrlimit(name, (value, value))


def threads_of_user() -> int:
    """Return the number of threads of all processes of this process's user, as far as /proc shows them."""
    user, count = os.geteuid(), 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            if os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def give_way_in_need() -> None:
    """Have the kernel end this process first when memory runs out, not an engine or a learner beside it."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def lock_down(level: str, walls: Walls, scratch: str) -> None:
    """Take the last steps in a contestant, which cannot be undone; raise OSError when one of the level is refused."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if level == "namespaces" or os.geteuid() == 0:
        kernel.drop_capabilities()
    # The CUDA driver names its threads by writing to /proc. Where that is the machine's own /proc, only this process's
    # part may be written: root needs no capability to write to the rest.
    own = "/proc" if level == "namespaces" else "/proc/self"
    settable = [own] if walls.device == "cuda" else []
    if level == "namespaces" and landlock_version():
        restrict_files(["/"], [SCRATCH, "/dev"], settable)
    elif level == "landlock":
        restrict_files([*walls.readable, "/proc", "/sys"], [scratch, *device_nodes(walls.nodes)], settable)
    install_base_filter(isolated=level == "namespaces", device=walls.device)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1 if level == "namespaces" else 0)


def probe(walls: Walls) -> str:
    """Return the strongest level that a child process can enter here; empty where there is none."""
    for level in LEVELS:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            status = 1
            try:
                _try_level(level, walls)
                status = 0
            finally:  # whatever the kernel's error, the level is not available
                os._exit(status)
        if os.waitpid(child, 0)[1] == 0:
            return level
    return ""


def _try_level(level: str, walls: Walls) -> None:
    """Enter the level, permanently; raise OSError when any step is refused."""
    if level != "namespaces":
        lock_down(level, walls, SCRATCH)
        return
    enter_root(walls)
    child = kernel.fork_into_namespaces(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS)
    if child == 0:
        status = 1
        try:
            furnish(walls, 1)
            lock_down(level, walls, SCRATCH)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise OSError("a contestant could not be walled in")
