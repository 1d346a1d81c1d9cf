"""Landlock: file access by list, and (newer kernels) no TCP, no signals and no abstract sockets to the outside."""

from __future__ import annotations

import ctypes
import os
import struct

from cudal1_ray.evaluation.sandbox.kernel_calls import syscall

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_RULE_PATH_BENEATH, _CREATE_RULESET_VERSION = 1, 1


def landlock_version() -> int:
    """Return the version of the kernel's Landlock interface; 0 without one."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict_files(readable: list[str], writable: list[str], settable: list[str] | None = None) -> None:
    """Let this process and its children read only below `readable` and change only below `writable`, permanently.

    Below `settable` they may read and write existing files, but create and remove none. Needs no_new_privs. Paths that
    do not exist are skipped. Raises OSError without Landlock.
    """
    version = landlock_version()
    if version < 1:
        raise OSError(38, "no Landlock")
    every_file = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    attributes = struct.pack("<Q", every_file)
    if version >= 4:
        attributes += struct.pack("<Q", 3)  # bind and connect of TCP
    if version >= 6:
        attributes += struct.pack("<Q", 3)  # abstract Unix sockets and signals
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    ruleset = syscall("landlock_create_ruleset", ctypes.byref(buffer), len(attributes), 0)
    try:
        setting = _READ | _WRITE_FILE | _TRUNCATE
        rules = ((readable, _READ | _IOCTL_DEVICE), (writable, every_file), (settable or [], setting))
        for paths, access in rules:
            for path in paths:
                _allow(ruleset, path, access & every_file)
        syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
        rule = struct.pack("<Qi", access, fd)
        buffer = ctypes.create_string_buffer(rule, len(rule))
        syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, ctypes.byref(buffer), 0)
    finally:
        os.close(fd)
