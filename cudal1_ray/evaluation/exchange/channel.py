"""Messages between referee, fork server and contestants: length-prefixed JSON, file descriptors, shared memory.

The format is JSON, not pickle, because the referee reads what contestants write and must not execute it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import select
import socket
import struct
import time
from contextlib import suppress
from typing import Any

import msgspec

from cudal1_ray.evaluation.sandbox import kernel_calls

_HEADER = struct.Struct("<I")
LARGEST_MESSAGE = 16 << 20
# Bytes that are moved at a time, in whole pages.
_PIECE = 16 << 20
_encode, _decode = msgspec.json.encode, msgspec.json.decode  # captured before any candidate


class ChannelClosed(Exception):
    """The other side closed the channel or died."""


class ChannelTimeout(Exception):
    """The other side did not answer in time."""


class Channel:
    """One end of a stream socket; `wait_hook` is called about twenty times a second while waiting."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Any, fds: tuple[int, ...] = ()) -> None:
        """Send a message; raise ChannelClosed if the other end is closed, UnicodeEncodeError for invalid Unicode."""
        body = _encode(message)
        data = _HEADER.pack(len(body)) + body
        try:
            if fds:
                data = data[socket.send_fds(self.sock, [data], fds) :]
            if data:
                self.sock.sendall(data)
        except (OSError, ValueError) as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None, wait_hook: Any = None) -> bytes:
        """Return the next message, encoded; raise ChannelTimeout, ChannelClosed, or ValueError if it is too long."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _HEADER.unpack(self._exactly(_HEADER.size, deadline, wait_hook))
        if length > LARGEST_MESSAGE:
            raise ValueError(f"message of {length} bytes")
        return self._exactly(length, deadline, wait_hook)

    def receive_with_fds(self, most: int, kind: Any) -> tuple[Any, list[int]]:
        """Wait for the trusted side's next message, of type `kind`; return it and the descriptors sent with it.

        Raise OSError where this process may not have as many open files.
        """
        try:
            data, fds, flags, _ = socket.recv_fds(self.sock, _HEADER.size, most)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not data:
            raise ChannelClosed("end of stream")
        data += self._exactly(_HEADER.size - len(data), None, None)
        (length,) = _HEADER.unpack(data)
        message = _decode(self._exactly(length, None, None), type=kind)
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return message, fds

    def _exactly(self, count: int, deadline: float | None, wait_hook: Any) -> bytes:
        parts: list[bytes] = []
        while count > 0:
            if deadline is not None or wait_hook is not None:
                self._wait(deadline, wait_hook)
            try:
                part = self.sock.recv(min(count, 1 << 20))
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not part:
                raise ChannelClosed("end of stream")
            parts.append(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _wait(self, deadline: float | None, wait_hook: Any) -> None:
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise ChannelTimeout("no answer in time")
            if self._poll.poll(50 if left is None else max(1.0, min(50.0, left * 1000))):
                return
            if wait_hook is not None:
                wait_hook()

    def close(self) -> None:
        self.sock.close()


def channel_pair() -> tuple[Channel, socket.socket]:
    """Return this process's end and the socket for the other process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(ours), theirs


class SharedRegion:
    """Anonymous shared memory of a fixed size that this process may write; a shrunken region would kill its reader.

    With `others_read_only` no other process can map it writable, so no contestant can change what another one reads.
    """

    def __init__(self, size: int, *, others_read_only: bool) -> None:
        self.size = max(mmap.PAGESIZE, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self.fd = os.memfd_create("region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        self.memory = mmap.mmap(self.fd, self.size)
        seals = kernel_calls.F_SEAL_SHRINK | kernel_calls.F_SEAL_GROW
        if others_read_only:
            seals |= kernel_calls.F_SEAL_FUTURE_WRITE
        fcntl.fcntl(self.fd, kernel_calls.F_ADD_SEALS, seals | kernel_calls.F_SEAL_SEAL)

    def take(self, other: SharedRegion, nbytes: int) -> None:
        """Move the first bytes of a region that others may write to this one's beginning: both together take no more
        memory than one of them, and a piece.
        """
        for start in range(0, nbytes, _PIECE):
            size = min(_PIECE, nbytes - start)
            self.memory[start : start + size] = other.memory[start : start + size]
            with suppress(OSError):  # a kernel that cannot give back a part of a file
                other.memory.madvise(mmap.MADV_REMOVE, start, size)

    def close(self) -> None:
        with suppress(BufferError):  # a view of it still exists; the garbage collector frees the memory
            self.memory.close()
        os.close(self.fd)
