"""What stands between the network and the routes: keys, sizes, times, headers, and errors that reveal nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from cudal1_ray.serving.access.admission import Decision, retry_header
from cudal1_ray.serving.access.keys import key_digest
from cudal1_ray.serving.access.request_checks import (
    SAFE_METHODS,
    Receive,
    bearer_key,
    body_fault,
    header_fault,
    read_body,
    replay,
)
from cudal1_ray.serving.access.scrubbing import scrub
from cudal1_ray.serving.config import SecurityConfig
from cudal1_ray.serving.metrics import RequestMetrics

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
# Headers that a route may choose itself.
OWN_CHOICE = (b"content-security-policy", b"cache-control")
# Paths of Kubernetes, and of vLLM's and SGLang's own servers: the same answer at each.
HEALTH_PATHS = ("/healthz", "/health")
_logger = logging.getLogger("cudal1.serving")


class RequestCounter(Protocol):
    """Where requests are counted; for the whole application, not for each process of it."""

    async def ask(self, digest: str | None) -> Decision: ...

    async def release(self, lease: int) -> None: ...


class AccessMiddleware:
    """ASGI middleware around the whole application.

    In this order: headers that are in order (415; without keys, 421 and 403 for what comes by way of another site); a
    key (401), its limits (429) and a server that stays (503); a body that arrives in time (408) and is not too large
    (413); an answer in time (504). Whatever goes wrong inside is answered by a number under which the log has the
    story; paths of this machine are blotted out of every error.

    Args:
        open_paths: paths that are answered without a key; one that ends in a slash stands for all below it.
    """

    def __init__(
        self,
        app: App,
        config: SecurityConfig,
        coordinator: RequestCounter,
        metrics: RequestMetrics,
        open_paths: Sequence[str] = (),
    ):
        self._app, self._config, self._coordinator, self._metrics = app, config, coordinator, metrics
        self._open = (*HEALTH_PATHS, *(() if config.metrics_need_key else ("/metrics",)), *open_paths)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            elif scope["type"] == "websocket":  # there are none here
                await send({"type": "websocket.close", "code": 1008})
            return
        resumable = scope["path"].endswith("/events")
        answer = _ResponseWriter(send, body_to_come=scope.get("method") not in SAFE_METHODS, resumable=resumable)
        started, lease, key_name = time.monotonic(), 0, ""
        try:
            if fault := header_fault(scope, keyless=not self._config.keys_file):
                await answer.refuse(fault.status, fault.message)
                return
            if not self._is_open(scope["path"]):
                key = bearer_key(scope)
                decision = await self._coordinator.ask(None if key is None else key_digest(key))
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
                await self._coordinator.release(lease)
            self._metrics.ended(scope["path"], answer.status, time.monotonic() - started)

    def _is_open(self, path: str) -> bool:
        if ".." in path:
            return False
        return any(
            path == prefix or (len(prefix) > 1 and prefix.endswith("/") and path.startswith(prefix))
            for prefix in self._open
        )

    async def _forward(self, scope: dict[str, Any], receive: Receive, answer: _ResponseWriter) -> None:
        limit = self._config.max_body_kib << 10
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                body = await read_body(scope, receive, limit)
        except TimeoutError:
            await answer.refuse(408, f"the body did not arrive within {self._config.body_timeout_s:g} s")
            return
        answer.body_to_come = body is None
        if body is None:
            await answer.refuse(413, f"the body is larger than {self._config.max_body_kib} KiB")
            return
        if fault := body_fault(scope, body):
            await answer.refuse(400, fault)
            return
        try:
            async with asyncio.timeout(self._config.request_timeout_s):
                await self._app(scope, replay(body, receive), answer.send)
        except TimeoutError:
            await answer.refuse(504, f"no answer within {self._config.request_timeout_s:g} s")
        await answer.finish()


class _ResponseWriter:
    """The way out. Errors are held back until they are whole, and scrubbed; everything else passes at once.

    Args:
        resumable: a client that is cut off asks for the rest, so its stream may end early without an error.

    Attributes:
        body_to_come: what is refused while its body is still on the way ends the connection: the rest is not read.
    """

    def __init__(self, send: Send, body_to_come: bool, resumable: bool):
        self._send, self._resumable = send, resumable
        self._is_event_stream = False
        self.body_to_come = body_to_come
        self._held: dict[str, Any] | None = None  # the start of an error
        self._body = b""
        self.ended = False
        self.status = 0

    def send(self, message: dict[str, Any]) -> Awaitable[None]:
        """Send a message: a piece of a stream goes straight on, without a coroutine in between, since every token is
        one.
        """
        if self._held is not None or message["type"] != "http.response.body":
            return self._weigh(message)
        if not message.get("more_body"):
            self.ended = True
        return self._send(message)

    async def _weigh(self, message: dict[str, Any]) -> None:
        """Send the start of an answer with our headers; hold an error back until it is whole."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            raw_headers = message.get("headers", [])
            kind = next((value for name, value in raw_headers if name.lower() == b"content-type"), b"")
            self._is_event_stream = kind.startswith(b"text/event-stream")
            chosen = {name.lower() for name, _ in raw_headers if name.lower() in OWN_CHOICE}
            ours = [(name, value) for name, value in HEADERS if name not in chosen]
            replaced = {name for name, _ in ours}
            headers = [(name, value) for name, value in raw_headers if name.lower() not in replaced]
            message = {**message, "headers": headers + ours}
            if self.status >= 400:
                self._held = message
                return
        elif self._held is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._send_held()
            return
        await self._send(message)

    async def refuse(self, status: int, message: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        """Answer with an error of our own, in OpenAI's form; break off an answer that is under way already."""
        if self.status and self._held is None:
            await self._break_off(error_body(status, message))
            return
        self.status, self._held = status, {"type": "http.response.start", "status": status}
        ends = [(b"connection", b"close")] if self.body_to_come else []
        self._held["headers"] = [(b"content-type", b"application/json"), *HEADERS, *ends, *(headers or [])]
        self._body = error_body(status, message)
        await self._send_held()

    async def _break_off(self, error: bytes) -> None:
        """End an answer under way so that clients see that it is not whole: by an event with the error, as vLLM does,
        or without an end, upon which the HTTP server closes the connection.
        """
        if self._resumable:
            await self.finish()
        elif not self.ended:
            self.ended = True
            if self._is_event_stream:
                await self._send({"type": "http.response.body", "body": b"data: " + error + b"\n\n"})

    async def finish(self) -> None:
        """End an answer that its maker left open."""
        if self.status and not self.ended:
            if self._held is not None:
                await self._send_held()
            else:
                self.ended = True
                await self._send({"type": "http.response.body", "body": b""})

    async def _send_held(self) -> None:
        start, self._held, self.ended = self._held, None, True
        body = scrub(in_openai_form(start["status"], self._body).decode("utf-8", "replace")).encode()
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        start["headers"] = [*headers, (b"content-length", str(len(body)).encode())]
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def log_fault(path: str, error: BaseException) -> str:
    """Log a fault of ours under a new number; return the message for the caller, which has the number only."""
    number = uuid.uuid4().hex[:12]
    _logger.error("error %s at %s", number, path, exc_info=error)
    return f"internal error {number}; the server's log has it under this number"


def in_openai_form(status: int, body: bytes) -> bytes:
    """Return an error's body in OpenAI's form: FastAPI's own, such as an unknown route's, is `{"detail": ...}`."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError):
        return body
    return error_body(status, detail if isinstance(detail, str) else json.dumps(detail))


def error_body(status: int, message: str) -> bytes:
    """Return an error in OpenAI's form, which its clients turn into exceptions."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )
    body = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")  # `scrub` reads no escapes
