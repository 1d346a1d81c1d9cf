"""What is wrong with a request before any route sees it: its headers, its size, its encoding, its text."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Receive = Callable[[], Awaitable[dict[str, Any]]]

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)
# Names of this very machine. A page of another site that has its own name resolve to 127.0.0.1 (DNS rebinding) still
# sends that name.
_LOCAL_HOST = re.compile(rb"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])\.?(?::\d{1,5})?", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """An HTTP status, and a line for the caller."""

    status: int
    message: str


def header_fault(scope: dict[str, Any], *, keyless: bool) -> Fault | None:
    """Return why this request is refused by its headers alone; None where it is not.

    keyless: every client that reaches this server may use it, so it must not be reached by way of a browser that has
    another site's page open.
    """
    headers = scope.get("headers", [])
    for value in _values(headers, b"content-encoding"):
        if value.strip().lower() not in (b"", b"identity"):
            return Fault(415, "bodies are taken as they are: leave out Content-Encoding")
    if not keyless:
        return None
    hosts = _values(headers, b"host")
    if len(hosts) > 1 or (hosts and not _LOCAL_HOST.fullmatch(hosts[0].strip())):
        return Fault(421, "this server has no keys, so it answers to localhost only; security.keys_file opens it")
    for origin in _values(headers, b"origin"):
        _, _, site = origin.strip().lower().partition(b"://")
        if scope.get("method") not in SAFE_METHODS and site not in [host.strip().lower() for host in hosts]:
            return Fault(403, "this server has no keys, so it takes nothing from pages of other sites")
    return None


def body_fault(scope: dict[str, Any], body: bytes) -> str:
    """Return why no route can take this body, empty where one can: routes expect an object of real text.

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


async def read_body(scope: dict[str, Any], receive: Receive, limit: int) -> bytes | None:
    """Read the whole body; None when it is larger than `limit` bytes, by its header or as it arrives."""
    for value in _values(scope.get("headers", []), b"content-length"):
        if value.isdigit() and (len(value) > 18 or int(value) > limit):
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


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives this body at once, and after it what the connection sends."""
    sent = False

    async def replayed() -> dict[str, Any]:
        nonlocal sent
        if sent:
            return await receive()  # the end of the connection
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def bearer_key(scope: dict[str, Any]) -> str | None:
    """Return the key that a request brings; None for none, for two, and for another kind of authorisation."""
    values = _values(scope.get("headers", []), b"authorization")
    if len(values) != 1:
        return None
    kind, _, key = values[0].decode("latin-1").partition(" ")
    return key.strip() if kind.lower() == "bearer" else None


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for header, value in headers if header.lower() == name]
