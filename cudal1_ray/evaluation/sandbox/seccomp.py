"""System-call filters for contestants (classic BPF, built here without a library)."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from cudal1_ray.evaluation.sandbox import kernel_calls

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LD, _JEQ, _JSET, _RET = 0x20, 0x15, 0x45, 0x06
_X86_64, _X32 = 0xC000003E, 0x40000000
_SECCOMP_SET_MODE_FILTER, _TSYNC = 1, 1
CLONE_THREAD = 0x00010000
# All flags CLONE_NEW*.
_NAMESPACE_FLAGS = 0x7E020080

# Refused with EPERM. Calls that need a capability (mounts, modules, clocks) are not listed: contestants have none, and
# cannot create a user namespace, which would give them some.
_REFUSED = {
    # other processes
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "process_madvise": 440,
    "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "perf_event_open": 298, "unshare": 272,
    "setns": 308,
    # ways around these rules, and resources that outlive the process or are accounted outside it
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "io_setup": 206, "bpf": 321,
    "userfaultfd": 323, "keyctl": 250, "add_key": 248, "request_key": 249, "semget": 64, "msgget": 68, "syslog": 103,
    # the speed of this process, or of others
    "setpriority": 141, "sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setparam": 142,
    "sched_setattr": 314, "ioprio_set": 251,
}  # fmt: skip
_CLONE, _CLONE3, _FORK, _VFORK = 56, 435, 57, 58
_SOCKET, _CONNECT, _KILL, _TKILL, _TGKILL = 41, 42, 62, 200, 234
_AF_UNIX = 1
_MEMFD_CREATE, _SHMGET = 319, 29
# Timers on CPU time and limits on it make the kernel's CPU clock of this process lag by a scheduler tick.
_SETRLIMIT, _PRLIMIT, _SETITIMER, _TIMER_CREATE = 160, 302, 38, 222


class _Program:
    """Instructions in the order in which they are tried; a rule that does not match falls through."""

    def __init__(self) -> None:
        self._code: list[bytes] = []
        self._add(_LD, 4)
        self._add(_JEQ, _X86_64, 1, 0)
        self._refuse()  # a 32-bit entry point
        self._add(_LD, 0)
        self._add(_JSET, _X32, 0, 1)  # x32 call numbers would bypass every rule below
        self._refuse()

    def _add(self, code: int, k: int, yes: int = 0, no: int = 0) -> None:
        self._code.append(struct.pack("<HBBI", code, yes, no, k & 0xFFFFFFFF))

    def _refuse(self, error: int = errno.EPERM) -> None:
        self._add(_RET, _ERRNO | error)

    def refuse(self, number: int, error: int = errno.EPERM) -> None:
        self._add(_JEQ, number, 0, 1)
        self._refuse(error)

    def refuse_unless(self, number: int, argument: int, value: int) -> None:
        """Refuse a system call unless the low half of its argument number `argument` equals `value`."""
        self._refuse_by_argument(number, argument, _JEQ, value, 1, 0)

    def refuse_if_bits(self, number: int, mask: int, *, present: bool) -> None:
        """Refuse a system call if its first argument has any of (or, not `present`, none of) the bits."""
        self._refuse_by_argument(number, 0, _JSET, mask, int(not present), int(present))

    def _refuse_by_argument(self, number: int, argument: int, test: int, value: int, yes: int, no: int) -> None:
        self._add(_JEQ, number, 0, 4)
        self._add(_LD, 16 + 8 * argument)
        self._add(test, value, yes, no)
        self._refuse()
        self._add(_LD, 0)

    def install(self) -> None:
        """Install the filter for every thread of this process; raise OSError when the kernel refuses."""
        self._add(_RET, _ALLOW)
        data = b"".join(self._code)
        buffer = ctypes.create_string_buffer(data, len(data))
        program = struct.pack("<HxxxxxxQ", len(self._code), ctypes.addressof(buffer))
        held = ctypes.create_string_buffer(program, len(program))
        kernel_calls.syscall("seccomp", _SECCOMP_SET_MODE_FILTER, _TSYNC, ctypes.byref(held))


def install_base_filter(*, isolated: bool, device: str) -> None:
    """Refuse what no candidate needs; without namespaces (`isolated` false) signals and sockets as well.

    Needs no_new_privs. Raises OSError where seccomp is not supported.
    """
    program = _Program()
    for number in _REFUSED.values():
        program.refuse(number)
    program.refuse(_CLONE3, errno.ENOSYS)  # its flags lie in memory; the C library then falls back to clone
    program.refuse_if_bits(_CLONE, _NAMESPACE_FLAGS, present=True)
    program.refuse_unless(_SOCKET, 0, _AF_UNIX)
    if device == "cpu":  # no limit counts this memory; the CUDA driver may need it
        program.refuse(_MEMFD_CREATE)
        program.refuse(_SHMGET)
    program.refuse(_SETRLIMIT)
    program.refuse_unless(_PRLIMIT, 2, 0)  # allows reading limits
    program.refuse_unless(_SETITIMER, 0, 0)  # allows the timer on wall time
    program.refuse_if_bits(_TIMER_CREATE, 0xFFFFFFF6, present=True)  # allows clocks 0, 1, 8 and 9, all of wall time
    if not isolated:
        # Refuse connections to other programs' sockets, which Landlock does not cover. The CUDA driver tries to reach a
        # server of its own, and works without one.
        program.refuse(_CONNECT, errno.EPERM if device == "cpu" else errno.ECONNREFUSED)
        program.refuse_unless(_KILL, 0, os.getpid())
        program.refuse_unless(_TGKILL, 0, os.getpid())
        program.refuse(_TKILL)
    program.install()


def install_no_process_filter() -> None:
    """Forbid new processes from now on, except threads: a timed candidate needs no process."""
    program = _Program()
    program.refuse(_FORK)
    program.refuse(_VFORK)
    program.refuse_if_bits(_CLONE, CLONE_THREAD, present=False)
    program.install()
