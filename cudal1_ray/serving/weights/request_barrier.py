"""The barrier that requests pass on their way to an engine; it closes while a new version of the weights is loaded.

Requests that are let in keep the version they were let in under, unless they take longer than a roll waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from cudal1_ray.serving.access.middleware import App, Send, error_body
from cudal1_ray.serving.access.request_checks import Receive
from cudal1_ray.serving.weights.versions import Weights

# Routes of the engine, which wait while weights are replaced.
GENERATING = ("/v1/completions", "/v1/chat/completions")
HEADER = b"x-policy-version"


class BarrierBroken(RuntimeError):
    """The engine behind the barrier is of no use any more; its replica is about to be replaced."""


class RequestBarrier:
    """One engine's barrier; one event loop.

    Attributes:
        weights: those that a request let in now is answered with.
        under_way: requests that are in.
        updating: it is closed for a new version.
        broken: why the engine is of no use; empty while it is.
    """

    def __init__(self, weights: Weights):
        self.weights = weights
        self.under_way = 0
        self.broken = ""
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def updating(self) -> bool:
        return not self._open.is_set()

    @asynccontextmanager
    async def passed(self) -> AsyncIterator[Weights]:
        """Enter as soon as the barrier is open; yield the weights that answer.

        Raises:
            BarrierBroken: an update failed; nothing gets in any more.
        """
        while not self._open.is_set():  # it may have closed again before this task had its turn
            await self._open.wait()
        if self.broken:
            raise BarrierBroken(self.broken)
        self.under_way += 1
        self._empty.clear()
        try:
            yield self.weights
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._empty.set()

    async def change(self, weights: Weights, load: Callable[[Weights], Awaitable[None]], patience_s: float) -> None:
        """Close, wait until the requests inside have left, load, and open under the new version.

        Args:
            patience_s: seconds after which requests still inside go on with the new weights.

        Raises:
            what `load` raises: the barrier is broken then, since half-replaced weights are neither version.
        """
        self._open.clear()
        try:
            try:
                async with asyncio.timeout(patience_s):
                    await self._empty.wait()
            except TimeoutError:
                pass
            await load(weights)
            self.weights = weights
        except BaseException as error:
            self.broken = f"weights {weights.version} could not be loaded: {error}"
            raise
        finally:
            self._open.set()


class VersionHeader:
    """ASGI middleware: generating requests go through the barrier, and every answer states its policy version."""

    def __init__(self, app: App, barrier: RequestBarrier):
        self._app, self._barrier = app, barrier

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in GENERATING or scope["method"] != "POST":
            await self._app(scope, receive, _stamped(send, self._barrier.weights))
            return
        try:
            async with self._barrier.passed() as weights:
                await self._app(scope, receive, _stamped(send, weights))
        except BarrierBroken:
            headers = [(b"content-type", b"application/json"), (b"retry-after", b"10")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            body = error_body(503, "this replica is being replaced; try again shortly")
            await send({"type": "http.response.body", "body": body})


def _stamped(send: Send, weights: Weights) -> Send:
    """Return a `send` that stamps the version; no coroutine: every piece of every stream passes here on one shared
    core.
    """

    def stamped(message: dict[str, Any]) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            header = (HEADER, str(weights.version).encode())
            message = {**message, "headers": [*message.get("headers", ()), header]}
        return send(message)

    return stamped
