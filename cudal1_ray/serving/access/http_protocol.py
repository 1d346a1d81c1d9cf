"""uvicorn's HTTP protocol with bounds on a request's head, which uvicorn itself does not have.

A client that sends an endless head, byte by byte or gigabytes of it, would otherwise hold a connection, or memory.
Bodies are the middleware's business.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Seconds from a head's first byte, or from the connection, to the blank line at its end.
HEAD_TIMEOUT_S = 15.0
MAX_HEAD_BYTES = 64 << 10

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    head_timeout_s = HEAD_TIMEOUT_S
    max_head_bytes = MAX_HEAD_BYTES

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self._reading_head, self._head_bytes = True, 0
        self._too_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self._reading_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > self.max_head_bytes:
            self._break_off(_TOO_LARGE)
        else:
            self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def _await_head(self) -> None:
        if self._too_late is None:
            self._too_late = self.loop.call_later(self.head_timeout_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None

    def _give_up(self) -> None:
        self._too_late = None
        self._break_off(_TOO_LATE)

    def _break_off(self, answer: bytes) -> None:
        """End the connection without writing into an answer that is on its way."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(answer)
        self.transport.close()
