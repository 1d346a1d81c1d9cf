"""System-call filters for contestants (classic BPF, built here; no library needed)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from . import kernel_calls

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LD, _JEQ, _JSET, _RET = 0x20, 0x15, 0x45, 0x06
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP_SET_MODE_FILTER, _TSYNC = 1, 1
CLONE_THREAD = 0x00010000
_NAMESPACE_FLAGS = 0x7E020080  # every CLONE_NEW*

# name: (x86_64, aarch64). Refused with EPERM. What needs a capability (mounts, modules, clocks) is not listed:
# contestants have none, and cannot make a user namespace, in which they would.
_REFUSED = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "perf_event_open": (298, 241), "unshare": (272, 97), "setns": (308, 268),
    # ways around these rules, and what lasts or is counted beyond the process
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_setup": (206, 0),
    "bpf": (321, 280), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "semget": (64, 190), "msgget": (68, 186), "syslog": (103, 116),
    # the pace of this process, or of others
    "setpriority": (141, 140), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "ioprio_set": (251, 30),
}  # fmt: skip
_CLONE, _CLONE3, _FORK, _VFORK = (56, 220), (435, 435), (57, None), (58, None)
_SOCKET, _CONNECT, _KILL, _TKILL, _TGKILL = (41, 198), (42, 203), (62, 129), (200, 130), (234, 131)
_AF_UNIX = 1
_MEMFD_CREATE, _SHMGET = (319, 279), (29, 194)
# Timers on CPU time and limits of it make the kernel's CPU clock of this process lag by a scheduler tick.
_SETRLIMIT, _PRLIMIT, _SETITIMER, _TIMER_CREATE = (160, 164), (302, 261), (38, 103), (222, 107)


class _Program:
    """Instructions in the order in which they are tried; a rule that does not match falls through."""

    def __init__(self, machine: str) -> None:
        self.column = list(_ARCHITECTURES).index(machine)
        self.code: list[bytes] = []
        self._add(_LD, 4)
        self._add(_JEQ, _ARCHITECTURES[machine], 1, 0)
        self._refuse(errno.EPERM)  # a 32-bit entry point
        self._add(_LD, 0)
        if machine == "x86_64":  # the x32 numbers would pass by every rule below
            self._add(_JSET, 0x40000000, 0, 1)
            self._refuse(errno.EPERM)

    def _add(self, code: int, k: int, yes: int = 0, no: int = 0) -> None:
        self.code.append(struct.pack("<HBBI", code, yes, no, k & 0xFFFFFFFF))

    def _refuse(self, number: int) -> None:
        self._add(_RET, _ERRNO | number)

    def refuse(self, numbers: tuple[int | None, int | None], error: int = errno.EPERM) -> None:
        if (number := numbers[self.column]) is not None:
            self._add(_JEQ, number, 0, 1)
            self._refuse(error)

    def refuse_unless(self, numbers: tuple[int | None, int | None], argument: int, value: int) -> None:
        """Refused unless the low half of the argument equals ``value``."""
        if (number := numbers[self.column]) is not None:
            self._add(_JEQ, number, 0, 4)
            self._add(_LD, 16 + 8 * argument)
            self._add(_JEQ, value, 1, 0)
            self._refuse(errno.EPERM)
            self._add(_LD, 0)

    def refuse_if_bits(self, numbers: tuple[int | None, int | None], mask: int, *, present: bool) -> None:
        """Refused if the first argument has any of (or, not ``present``, none of) the bits."""
        if (number := numbers[self.column]) is not None:
            self._add(_JEQ, number, 0, 4)
            self._add(_LD, 16)
            self._add(_JSET, mask, *((0, 1) if present else (1, 0)))
            self._refuse(errno.EPERM)
            self._add(_LD, 0)

    def install(self) -> None:
        """For every thread of this process. OSError when the kernel refuses."""
        self._add(_RET, _ALLOW)
        data = b"".join(self.code)
        buffer = ctypes.create_string_buffer(data, len(data))
        program = struct.pack("<HxxxxxxQ", len(self.code), ctypes.addressof(buffer))
        held = ctypes.create_string_buffer(program, len(program))
        kernel_calls.syscall("seccomp", _SECCOMP_SET_MODE_FILTER, _TSYNC, ctypes.byref(held))


def install_base_filter(*, isolated: bool, device: str) -> None:
    """Refuses what no candidate needs. Without namespaces (``isolated`` false) signals and sockets are refused as
    well.

    Needs no_new_privs. OSError where seccomp or the processor is not supported.
    """
    if platform.machine() not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no filter for processor {platform.machine()}")
    program = _Program(platform.machine())
    for numbers in _REFUSED.values():
        program.refuse(numbers)
    program.refuse(_CLONE3, errno.ENOSYS)  # its flags lie in memory; the C library then falls back to clone
    program.refuse_if_bits(_CLONE, _NAMESPACE_FLAGS, present=True)
    program.refuse_unless(_SOCKET, 0, _AF_UNIX)
    if device == "cpu":  # memory behind these is counted nowhere; the CUDA driver may need them
        program.refuse(_MEMFD_CREATE)
        program.refuse(_SHMGET)
    program.refuse(_SETRLIMIT)
    program.refuse_unless(_PRLIMIT, 2, 0)  # reading limits is fine
    program.refuse_unless(_SETITIMER, 0, 0)  # the wall clock's
    program.refuse_if_bits(_TIMER_CREATE, 0xFFFFFFF6, present=True)  # clocks 0, 1, 8 and 9 are of the wall
    if not isolated:
        # To other programs' sockets, which Landlock does not cover. The CUDA driver asks for a server of its own, and
        # does without one that is not there.
        program.refuse(_CONNECT, errno.EPERM if device == "cpu" else errno.ECONNREFUSED)
        program.refuse_unless(_KILL, 0, os.getpid())
        program.refuse_unless(_TGKILL, 0, os.getpid())
        program.refuse(_TKILL)
    program.install()


def install_no_process_filter() -> None:
    """From now on no process can be started, only threads: a timed candidate has no use for one."""
    program = _Program(platform.machine())
    program.refuse(_FORK)
    program.refuse(_VFORK)
    program.refuse_if_bits(_CLONE, CLONE_THREAD, present=False)
    program.install()
