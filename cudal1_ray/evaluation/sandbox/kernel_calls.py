"""Linux system calls that Python lacks, by ctypes: namespaces, mounts, prctl, Landlock, other processes' clocks."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from contextlib import suppress

# PyDLL keeps the interpreter lock: no other thread may run between a raw clone and its return.
_libc = ctypes.PyDLL(None, use_errno=True)

_read = ctypes.CDLL(None, use_errno=True).process_vm_readv
_read.restype = ctypes.c_ssize_t
_read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]

CLONE_NEWNS, CLONE_NEWUTS = 0x00020000, 0x04000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
SIGCHLD = 17

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
AT_FDCWD, AT_RECURSIVE = -100, 0x8000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE = 1033, 1, 2, 4, 16

_NUMBERS = {
    "clone": 56, "pivot_root": 155, "capset": 126, "seccomp": 317, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446, "mount_setattr": 442,
}  # fmt: skip


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(name: str, *arguments: object) -> int:
    """Return the result of a raw system call; raise OSError when the kernel refuses it."""
    if platform.machine() != "x86_64":
        raise OSError(errno.ENOSYS, f"{name}: no number for processor {platform.machine()}")
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(_NUMBERS[name]), *converted), name)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def prctl(option: int, *arguments: int) -> None:
    padded = (*arguments, 0, 0, 0, 0)[:4]
    _checked(_libc.prctl(option, *(ctypes.c_ulong(a) for a in padded)), "prctl")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    def encode(text: str | None) -> bytes | None:
        return None if text is None else os.fsencode(text)

    _checked(
        _libc.mount(encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(data)),
        f"mount {target}",
    )


def make_read_only(target: str) -> None:
    """Make everything mounted at and below `target` read-only and free of set-uid programs and devices."""

    class _Attributes(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]

    flags = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
    attributes = _Attributes(flags, 0, 0, 0)
    syscall(
        "mount_setattr", AT_FDCWD, ctypes.c_char_p(os.fsencode(target)), AT_RECURSIVE,
        ctypes.byref(attributes), ctypes.sizeof(attributes),
    )  # fmt: skip


def pivot_root(new_root: str) -> None:
    """Make `new_root` the root directory and unmount the old one."""
    os.chdir(new_root)
    syscall("pivot_root", ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))
    _checked(_libc.umount2(b".", MNT_DETACH), "umount .")
    os.chdir("/")


def fork_into_namespaces(flags: int) -> int:
    """Fork as os.fork does, with the child in new namespaces; the caller must have one thread only."""
    return syscall("clone", flags | SIGCHLD, 0, 0, 0, 0)


def drop_capabilities() -> None:
    """Drop every capability, so that none can come back through a program that is executed."""
    for capability in range(64):
        with suppress(OSError):  # this kernel has no such capability, or does not let this process drop it
            prctl(PR_CAPBSET_DROP, capability)
    with suppress(OSError):
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    syscall("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def process_cpu_clock(pid: int) -> int:
    """Return the clock id under which time.clock_gettime reads the CPU time of all threads of another process."""
    return (~pid << 3) | 2


class _Piece(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t)]


def read_memory(pid: int, address: int, nbytes: int) -> bytearray:
    """Return `nbytes` from `address` on in the memory of another process, which does not take part.

    Raises:
        OSError: EFAULT where nothing is mapped, EPERM or ENOSYS where its memory is closed to this process.
    """
    content, done = bytearray(nbytes), 0
    here = ctypes.addressof(ctypes.c_char.from_buffer(content)) if nbytes else 0
    while done < nbytes:  # the kernel copies 2 GiB at a time, and stops where a page is missing
        ours, theirs = (_Piece(start + done, nbytes - done) for start in (here, address))
        done += _checked(_read(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0), "process_vm_readv")
    return content
