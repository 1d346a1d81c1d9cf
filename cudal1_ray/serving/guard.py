"""What stands between the network and the routes: keys, sizes, times, headers, and errors that tell nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from cudal1_ray.serving.admission import Decision, retry_header
from cudal1_ray.serving.config import SecurityConfig
from cudal1_ray.serving.keys import key_digest
from cudal1_ray.serving.metrics import RequestMetrics

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
]
OPEN = ("/healthz",)
_PATH = re.compile(r"(?<![\w./:])(?:/[\w.+@~-]+){2,}/?")  # an absolute path of some file system
_ROUTE = re.compile(r"/(?:v1|healthz|metrics)\b")
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)
_logger = logging.getLogger("cudal1.serving")


class Keeper(Protocol):
    """Where requests are counted; for the whole application, not for each process of it."""

    async def ask(self, digest: str | None) -> Decision: ...

    async def release(self, lease: int) -> None: ...


class Guard:
    """ASGI middleware around the whole application.

    In this order: a key (401), its limits (429) and a server that stays (503); a body that arrives in time (408) and
    is not too large (413); an answer in time (504). Whatever goes wrong inside is answered by a number under which
    the log has the story; paths of this machine are blotted out of every error.
    """

    def __init__(self, app: App, config: SecurityConfig, keeper: Keeper, metrics: RequestMetrics):
        self._app, self._config, self._keeper, self._metrics = app, config, keeper, metrics
        self._open = OPEN if config.metrics_need_key else (*OPEN, "/metrics")

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        started, lease, key_name = time.monotonic(), 0, ""
        try:
            if scope["path"] not in self._open:
                decision = await self._keeper.ask(_digest(scope))
                lease, key_name = decision.lease, decision.key_name
                if not lease:
                    extra = [(b"www-authenticate", b"Bearer")] if decision.status == 401 else []
                    if decision.retry_after_s:
                        extra.append((b"retry-after", retry_header(decision.retry_after_s).encode()))
                    await answer.refuse(decision.status, decision.message, extra)
                    return
            scope.setdefault("state", {})["key_name"] = key_name
            await self._forward(scope, receive, answer)
        except Exception as error:
            if not answer.ended:  # else a route has answered for it, and it is on its way to the log only
                await answer.refuse(500, log_fault(scope["path"], error))
        finally:
            if lease:
                await self._keeper.release(lease)
            self._metrics.ended(scope["path"], answer.status, time.monotonic() - started)

    async def _forward(self, scope: dict[str, Any], receive: Receive, answer: _Answer) -> None:
        limit = self._config.max_body_kib << 10
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                body = await _read_body(scope, receive, limit)
        except TimeoutError:
            await answer.refuse(408, f"the body did not arrive within {self._config.body_timeout_s:g} s")
            return
        if body is None:
            await answer.refuse(413, f"the body is larger than {self._config.max_body_kib} KiB")
            return
        if fault := body_fault(scope, body):
            await answer.refuse(400, fault)
            return
        try:
            async with asyncio.timeout(self._config.request_timeout_s):
                await self._app(scope, _replay(body, receive), answer.send)
        except TimeoutError:
            await answer.refuse(504, f"no answer within {self._config.request_timeout_s:g} s")
        await answer.finish()


class _Answer:
    """The way out. Errors are held back until they are whole, and scrubbed; everything else passes at once."""

    def __init__(self, send: Send):
        self._send = send
        self._held: dict[str, Any] | None = None  # the start of an error
        self._body = b""
        self.ended = False
        self.status = 0

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name for name, _ in HEADERS}
            kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in own]
            message = {**message, "headers": kept + HEADERS}
            if self.status >= 400:
                self._held = message
                return
        elif self._held is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._send_held()
            return
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            self.ended = True
        await self._send(message)

    async def refuse(self, status: int, message: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        """An error of our own, in OpenAI's form; where an answer is under way already, it is broken off."""
        if self.status and self._held is None:
            await self.finish()
            return
        self.status, self._held = status, {"type": "http.response.start", "status": status}
        self._held["headers"] = [(b"content-type", b"application/json"), *HEADERS, *(headers or [])]
        self._body = error_body(status, message)
        await self._send_held()

    async def finish(self) -> None:
        """Ends an answer that its maker left open."""
        if self.status and not self.ended:
            if self._held is not None:
                await self._send_held()
            else:
                self.ended = True
                await self._send({"type": "http.response.body", "body": b""})

    async def _send_held(self) -> None:
        start, self._held, self.ended = self._held, None, True
        body = scrub(self._body.decode("utf-8", "replace")).encode()
        kept = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        start["headers"] = [*kept, (b"content-length", str(len(body)).encode())]
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def log_fault(path: str, error: BaseException) -> str:
    """A fault of ours: the log gets the story, the caller the number it is under."""
    number = uuid.uuid4().hex[:12]
    _logger.error("error %s at %s", number, path, exc_info=error)
    return f"internal error {number}; the server's log has it under this number"


def error_body(status: int, message: str) -> bytes:
    """OpenAI's form of an error, which its clients turn into exceptions."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()


def scrub(text: str) -> str:
    """The text with absolute paths replaced; this server's own routes stay."""
    return _PATH.sub(lambda match: match[0] if _ROUTE.match(match[0]) else "<path>", text)


def body_fault(scope: dict[str, Any], body: bytes) -> str:
    """Empty, or why no route can take this body: routes expect an object of real text.

    A lone surrogate is valid JSON and no text: tokenizers and the pipes between processes refuse it, too late.
    """
    if scope.get("method") != "POST" or not body:
        return ""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "the body is not UTF-8"
    if not text.lstrip().startswith("{"):
        return "the body is not a JSON object"
    if _SURROGATE.search(text):
        try:
            json.dumps(json.loads(text), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return "the body holds half of a surrogate pair, which is no character"
        except (ValueError, RecursionError):
            return "the body is not valid JSON"
    return ""


def _digest(scope: dict[str, Any]) -> str | None:
    for name, value in scope.get("headers", []):
        if name.lower() == b"authorization":
            kind, _, key = value.decode("latin-1").partition(" ")
            return key_digest(key.strip()) if kind.lower() == "bearer" else None
    return None


async def _read_body(scope: dict[str, Any], receive: Receive, limit: int) -> bytes | None:
    """The whole body; None when it is larger than `limit` bytes, said or found."""
    for name, value in scope.get("headers", []):
        if name.lower() == b"content-length" and value.isdigit() and int(value) > limit:
            return None
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            return None
        if not message.get("more_body"):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replayed() -> dict[str, Any]:
        nonlocal sent
        if sent:
            return await receive()  # the end of the connection
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
