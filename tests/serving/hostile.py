"""Hostile callers: bodies, sources and whole connections. The same ones in every run."""

from __future__ import annotations

import gzip
import json
import random
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ROUTES = ("/v1/completions", "/v1/chat/completions", "/v1/optimize")


def bodies(count: int) -> list[bytes]:
    """Return bodies that are no JSON, not the right JSON, or right except one value."""
    rng = random.Random(0)
    right = {"model": "tiny", "prompt": "x", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}
    right |= {"source": "import torch", "rounds": 1, "samples_per_round": 1}
    keys = ["model", "prompt", "max_tokens", "temperature", "top_p", "n", "seed", "stop", "stream", "logprobs"]
    keys += ["logit_bias", "messages", "tools", "tool_choice", "response_format", "stream_options", "user", "echo"]
    keys += ["best_of", "suffix", "guided_json", "structured_outputs", "chat_template", "priority", "source"]
    keys += ["rounds", "samples_per_round", "time_limit_s", "prompt_logprobs", "stop_token_ids", "cache_salt"]
    keys += ["inputs", "init_inputs", "class_name", "max_tokens", "fresh"]
    values = [None, True, -1, 0, 10**30, -(10**30), 1e308, "", "\x00", "\ud800", "x" * 5000, [], [[]], [None], {}]
    values += [{"": ""}, [-1], [2**63], ["\ud800"], "../../etc/passwd", "{{ 7 * 7 }}", "{% for x in range(10**9) %}"]
    values += [[{"role": "user"}], [{"role": "\u202e", "content": [{"type": "image_url"}]}], {"type": "json_schema"}]
    values += [float("nan"), float("inf"), [[1, 2], "x"], [{"a": [{"b": [{}] * 50}]}] * 50, "(" * 3000, "-" * 30000]
    values += [[{"shape": [2**40]}], [{"shape": [-1]}], {"x": {"shape": [1], "dtype": "void"}}, ["__import__('os')"]]
    payloads = [b"", b"{", b"null", b"[]", b"\xff\xfe", b"\x00" * 100, b"[" * 30000, b'{"a":' * 5000, b"1e999", b"NaN"]
    payloads += [
        b'"\\ud800"',
        b"{}" * 3,
        b"x" * 70000,
        b'{"model": "tiny", "model": {}}',
        json.dumps("x" * 60000).encode(),
    ]
    payloads += [
        b'{"rounds": ' + b"9" * 5000 + b"}",
        b'{"time_limit_s": 1e999, "source": "x"}',
        b'{"source": "\xed\xa0\x80"}',
    ]
    payloads += [
        b'{"source": "' + b"\\u0000" * 9000 + b'"}',
        b"\xef\xbb\xbf{}",
        b'{"a": 1' + b"\x00}",
        "{}".encode("utf-16"),
    ]
    payloads += [
        b'{"source": ' + b"[" * 20000 + b"]" * 20000 + b"}",
        b'{"' + b"a" * 60000 + b'": 1}',
        gzip.compress(b"{}"),
    ]
    payloads += [json.dumps({"source": source, "inputs": ["randn(2)"]}).encode() for source in sources()]
    while len(payloads) < count:
        body = dict(right)
        for key in rng.sample(keys, rng.choice((1, 1, 1, 2, 3))):
            body[key] = rng.choice(values)
        text = json.dumps(body).encode()
        if rng.random() < 0.2:
            cut = rng.randrange(len(text))
            text = text[:cut] + bytes(rng.randrange(256) for _ in range(rng.randrange(4))) + text[cut + 1 :]
        payloads.append(text)
    return payloads


def sources(size: int = 60_000) -> list[str]:
    """Return Python that is hard on a parser: deep, long, ambiguous, or no Python; at most `size` characters each."""
    head = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x\nx = "
    deep = [
        "(",
        "[",
        "{",
        "{1:",
        "-",
        "not ",
        "lambda:",
        "f(a=",
        "[a for a in ",
        "(a:=",
        "await ",
        "f'{",
        "*",
        "@",
        "1 if 1 else ",
    ]
    chains = [".a", "()", "[0]", "+1", "**1", "<1", " or 1", " 'a'", ",1", "=1", ";x", ":1"]
    texts = [head + unit * (size // len(unit) - 9) for unit in deep]
    texts += [head + unit * n + "1" for unit in deep for n in (90, 199)]
    texts += [head + "a" + unit * (size // len(unit) - 9) for unit in chains]
    texts += [head + "1" * (size - 99), head + "0x" + "f" * (size - 99), head + "9e" + "9" * (size - 99)]
    texts += [
        "".join(" " * depth + "if 1:\n" for depth in range(99)) + " " * 99 + "pass",
        "\\\n" * 20000,
        "\x0c" * size,
    ]
    texts += [
        "match x:\n case " + "[" * 90 + "]" * 90 + ":pass",
        "@a\n" * 15000 + "def f():pass",
        "#" * size,
        "\ufeff" * 9000,
    ]
    return [source[:size] for source in texts]


@dataclass(frozen=True)
class Attack:
    """Bytes for one connection, in pieces with a pause after each."""

    name: str
    pieces: tuple[bytes, ...]
    pause_s: float = 0.0


def attacks(key: str) -> Iterator[Attack]:
    """Yield whole connections: heads, framing, paths and encodings."""
    auth = f"Authorization: Bearer {key}\r\n".encode()

    def get(path: bytes, more: bytes = b"", version: bytes = b"HTTP/1.1") -> bytes:
        return b"GET " + path + b" " + version + b"\r\nHost: localhost\r\n" + auth + more + b"Connection: close\r\n\r\n"

    def post(more: bytes, body: bytes = b"", path: bytes = b"/v1/optimize") -> bytes:
        head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + auth + b"Content-Type: application/json\r\n"
        return head + more + b"Connection: close\r\n\r\n" + body

    def chunk(data: bytes) -> bytes:
        return f"{len(data):x}\r\n".encode() + data + b"\r\n"

    chunked = b"Transfer-Encoding: chunked\r\n"
    for path in (
        b"/../../etc/passwd",
        b"/%2e%2e/%2e%2e/etc/passwd",
        b"/..%2f..%2fetc%2fpasswd",
        b"/%00",
        b"/a%00b",
        b"/.",
        b"/%ff%fe",
        b"/" + b"a" * 3000,
        b"/%0d%0aX-Injected:%201",
        b"/%252e%252e",
        b"/job.json",
        b"/events",
        b"/..",
        b"/%E2%80%AE",
        b"//",
        b"/;/",
        b"/?limit=-1&limit=x",
        b"?limit=99999999999999999999",
        b"?after=../x",
        b"?limit=" + b"9" * 5000,
        b"?" + b"a=1&" * 5000,
        b"?limit=%ff",
        b"?after=%00",
    ):
        yield Attack(f"path {path[:30]!r}", (get(b"/v1/optimize" + path),))
    for path in (
        b"http://evil.example/v1/models",
        b"*",
        b"v1/models",
        b"/\xff\xfe",
        b"//evil.example/",
        b"/-/routes",
        b"/healthz%00",
        b"/static/..%2f..%2f..%2fetc/passwd",
        b"/static/%2e%2e/%2e%2e/config.py",
        b"/metrics/../v1/models",
    ):
        yield Attack(f"target {path[:30]!r}", (get(path),))
    for value in (b"-1", b"99999999999", b"\xff", b"1;2", b"1e9", b"9" * 3000, "١".encode(), b"0x10", b"\x0b3"):
        more = b"Last-Event-ID: " + value + b"\r\n"
        yield Attack(f"last event {value[:10]!r}", (get(b"/v1/optimize/" + b"0" * 24 + b"/events", more),))
    for value in (b"nan", b"-1", b"\xff\xfe", b"1e-9", b"inf", b""):
        yield Attack(
            f"timeout header {value!r}", (get(b"/v1/models", b"X-Request-Timeout-Seconds: " + value + b"\r\n"),)
        )
    for value in (b"0", b"-1", b"+5", b"5, 6", b"0x5", b"99999999999999999999999", b"1e3", b"\xb2", b""):
        yield Attack(f"length {value!r}", (post(b"Content-Length: " + value + b"\r\n", b"{}{}{}"),))
    yield Attack("two lengths", (post(b"Content-Length: 2\r\nContent-Length: 300\r\n", b"{}"),))
    smuggled = b"0\r\n\r\n" + get(b"/metrics")
    yield Attack("length and chunks", (post(b"Content-Length: 6\r\n" + chunked, smuggled),))
    yield Attack("chunks by another name", (post(b"Transfer-Encoding: xchunked\r\n", smuggled),))
    yield Attack("chunks twice", (post(b"Transfer-Encoding: gzip, chunked\r\n", chunk(b"{}") + b"0\r\n\r\n"),))
    for size in (b"zz", b"-1", b"FFFFFFFFFFFFFFFFFF", b"1 1", b"0x2", b"2;" + b"a" * 70000, b""):
        yield Attack(f"chunk size {size[:20]!r}", (post(chunked, size + b"\r\n{}\r\n0\r\n\r\n"),))
    yield Attack("chunks without an end", (post(chunked), *[chunk(b" " * 60000)] * 60))
    yield Attack("chunks of one byte", (post(chunked), *[chunk(b"{") * 200] * 20))
    yield Attack("trailers without an end", (post(chunked, chunk(b"{}") + b"0\r\n"), *[b"a: b\r\n" * 1000] * 30))
    bomb = gzip.compress(b"0" * 50_000_000)
    for encoding in (b"gzip", b"deflate", b"br", b"zstd", b"identity, gzip", b"x" * 500):
        head = b"Content-Encoding: " + encoding + f"\r\nContent-Length: {len(bomb)}\r\n".encode()
        yield Attack(f"bomb {encoding[:10]!r}", (post(head, bomb),))
    yield Attack("expecting", (post(b"Expect: 100-continue\r\nContent-Length: 2\r\n"),), 0.1)
    yield Attack("expecting something", (post(b"Expect: \xff\r\nContent-Length: 2\r\n", b"{}"),))
    yield Attack(
        "a megabyte of parentheses", (post(b"Content-Length: 1000014\r\n", b'{"source": "' + b"(" * 1_000_000 + b'"}'),)
    )
    yield Attack("one long header", (get(b"/healthz", b"X: " + b"a" * 1_000_000 + b"\r\n"),))
    yield Attack("many headers", (get(b"/healthz", b"".join(b"X-%d: a\r\n" % i for i in range(20_000))),))
    yield Attack("a head without an end", (b"GET /healthz HTTP/1.1\r\n", *[b"X: " + b"a" * 60000 + b"\r\n"] * 60))
    yield Attack("a request line without an end", (b"GET /", *[b"a" * 60000] * 60))
    for more in (
        b"X\x00Y: 1\r\n",
        b"X: \x00\r\n",
        b" folded\r\n",
        b"X : 1\r\n",
        b": 1\r\n",
        b"\xff: \xff\r\n",
        b"X: 1\n\n",
        b"\r\r\n",
        b"Host: a\r\nHost: b\r\n",
        b"Host: \x00\r\n",
        b"Authorization: Bearer x\r\n",
        b"Cookie: " + b"a=b; " * 5000 + b"\r\n",
        b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n",
        b"Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        b"Range: bytes=" + b"0-," * 3000 + b"\r\n",
        b"Accept: " + b"*/*," * 3000 + b"\r\n",
        b"X-Forwarded-For: \xff\r\n",
        b"Forwarded: for=" + b"a" * 9000 + b"\r\n",
        b"Content-Type: multipart/form-data\r\n",
        b"Origin: null\r\n",
    ):
        yield Attack(f"header {more[:24]!r}", (get(b"/v1/optimize", more),))
    for method in (b"TRACE", b"CONNECT", b"OPTIONS", b"HEAD", b"PROPFIND", b"G\x00T", b"get", b"A" * 9000, b""):
        yield Attack(f"method {method[:10]!r}", (method + get(b"/v1/optimize")[3:],))
    for version in (b"HTTP/0.9", b"HTTP/9.9", b"HTTP/1.10", b"HTP/1.1", b"", b"HTTP/1.1 x"):
        yield Attack(f"version {version!r}", (get(b"/healthz", version=version),))
    yield Attack("HTTP/2", (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 500,))
    yield Attack("TLS", (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),))
    yield Attack("noise", (random.Random(3).randbytes(50_000),))
    yield Attack("line ends", (b"\r\n" * 20_000,))
    yield Attack("nothing", (b"",))
    yield Attack("a hundred at once", (get(b"/healthz").replace(b"Connection: close\r\n", b"") * 100,))
    yield Attack("gone before the answer", (post(b"Content-Length: 20\r\n", b'{"source": '),), -1.0)


def strike(port: int, attack: Attack, quiet_s: float) -> list[int]:
    """Send an attack; return the statuses of the answers until the connection ends, or is silent for too long."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30.0) as connection:
        try:
            for piece in attack.pieces:
                connection.sendall(piece)
                time.sleep(max(0.0, attack.pause_s))
        except (ConnectionError, TimeoutError):  # it has had enough of us; its earlier answer may still be there
            pass
        connection.settimeout(quiet_s)
        try:
            while attack.pause_s >= 0 and (data := connection.recv(65536)):
                heard += data
        except (ConnectionError, TimeoutError):
            pass
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", heard)]


class SlowCallers:
    """Connections that send a head or a body a byte at a time, and never finish; a context manager."""

    def __init__(self, port: int, key: str, count: int):
        auth = f"Host: localhost\r\nAuthorization: Bearer {key}\r\n".encode()
        head = b"POST /v1/optimize HTTP/1.1\r\n" + auth
        whole = head + b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
        second = b"GET /healthz HTTP/1.1\r\n" + auth + b"\r\nGET /hea"
        begun = [b"", b"POST /v1/opt", head, whole, second]
        self._connections: list[socket.socket] = []
        for number in range(count):
            connection = socket.create_connection(("127.0.0.1", port), timeout=30)
            connection.sendall(begun[number % len(begun)])
            self._connections.append(connection)

    def drip(self) -> None:
        """Send one more byte from each."""
        for connection in self._connections:
            try:
                connection.sendall(b" ")
            except OSError:
                continue

    def rid_of(self, within_s: float, tick: Callable[[], None]) -> int:
        """Return how many the server has dropped by then, while they go on dripping."""
        deadline, closed = time.monotonic() + within_s, 0
        while time.monotonic() < deadline and closed < len(self._connections):
            tick()
            self.drip()
            time.sleep(0.1)
            closed = sum(_is_gone(connection) for connection in self._connections)
        return closed

    def __enter__(self) -> SlowCallers:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()


def _is_gone(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(5)
