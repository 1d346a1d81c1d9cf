"""The middleware around small applications that do what an application may do wrong."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from prometheus_client import CollectorRegistry

from cudal1_ray.serving.access.admission import Admission
from cudal1_ray.serving.access.middleware import HEADERS, AccessMiddleware, error_body
from cudal1_ray.serving.access.scrubbing import scrub
from cudal1_ray.serving.config import SecurityConfig
from cudal1_ray.serving.metrics import RequestMetrics


class LocalCoordinator:
    def __init__(self, config):
        self.admission = Admission(config)

    async def ask(self, digest):
        return self.admission.ask(digest, 0.0)

    async def release(self, lease):
        self.admission.release(lease)


class Guarded:
    """An application behind a middleware, and what it was asked."""

    def __init__(self, app, open_paths=(), **fields):
        config = SecurityConfig(**fields)
        self.coordinator, self.metrics = LocalCoordinator(config), RequestMetrics(CollectorRegistry())
        self.middleware = AccessMiddleware(app, config, self.coordinator, self.metrics, open_paths)

    def post(self, path="/v1/completions", content=b"{}", headers=None, method="POST") -> httpx.Response:
        async def ask():
            transport = httpx.ASGITransport(self.middleware)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, content=content, headers=headers)

        return asyncio.run(ask())


def answering(status=200, body=b"{}", headers=()):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": body})

    return app


async def echo(scope, receive, send):
    message = await receive()
    await answering(body=message["body"])(scope, receive, send)


def message_of(response: httpx.Response) -> str:
    return response.json()["error"]["message"]


def test_answers_when_sent_carry_the_security_headers():
    for guarded in (Guarded(answering()), Guarded(answering(404)), Guarded(echo, max_body_kib=1)):
        for content in (b"{}", b"x" * 5000):
            response = guarded.post(content=content)
            assert {name.decode(): value.decode() for name, value in HEADERS}.items() <= dict(response.headers).items()


def test_body_when_too_large_is_refused_with_or_without_its_length():
    guarded = Guarded(echo, max_body_kib=1)
    assert guarded.post(content=b"{" * 1024).content == b"{" * 1024
    assert guarded.post(content=b"a" * 1025).status_code == 413

    async def parts():
        for _ in range(3):
            yield b"a" * 512

    assert guarded.post(content=parts()).status_code == 413
    assert guarded.coordinator.admission.under_way(0.0) == 0


def test_body_when_it_never_arrives_is_given_up():
    async def ask():
        sent = []

        async def receive():
            await asyncio.sleep(60)

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "path": "/v1/completions", "headers": []}
        await Guarded(echo, body_timeout_s=0.01).middleware(scope, receive, send)
        return sent

    start, body = asyncio.run(ask())
    assert start["status"] == 408 and b"did not arrive" in body["body"]


def test_answer_when_it_takes_too_long_is_an_error():
    async def app(scope, receive, send):
        await asyncio.sleep(60)

    guarded = Guarded(app, request_timeout_s=0.01)
    response = guarded.post()
    assert response.status_code == 504 and "no answer" in message_of(response)
    assert guarded.coordinator.admission.under_way(0.0) == 0


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    "path, kind, last",
    [
        ("/v1/completions", b"text/event-stream; charset=utf-8", b'data: {"error": {"message": '),
        ("/v1/completions", b"application/json", None),
        ("/v1/optimize/a/events", b"text/event-stream", b""),  # its client asks for the rest
    ],
)
def test_answer_when_it_is_broken_off_does_not_look_complete(path, kind, last, fails):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": b"some", "more_body": True})
        if fails:
            raise RuntimeError("a fault")
        await asyncio.sleep(60)

    async def ask():
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"{}"}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"host", b"localhost")]}
        await guarded.middleware(scope, receive, send)
        return sent

    guarded = Guarded(app, request_timeout_s=0.01)
    _, piece, *end = asyncio.run(ask())
    assert piece["body"] == b"some" and guarded.coordinator.admission.under_way(0.0) == 0
    if last is None:
        assert not end  # an HTTP server closes such a connection
    else:
        assert end[0]["body"].startswith(last) and not end[0].get("more_body")
        assert bool(last) == end[0]["body"].endswith(b"}}\n\n")


def test_fault_when_inside_is_a_number_for_the_caller_and_an_entry_in_the_log(caplog):
    async def app(scope, receive, send):
        raise RuntimeError("secret=/home/user/key")

    response = Guarded(app).post()
    assert response.status_code == 500 and "secret" not in response.text and "home" not in response.text
    number = message_of(response).split()[2].rstrip(";")
    assert number in caplog.text and "secret" in caplog.text


def test_errors_when_they_hold_paths_lose_them_and_nothing_else():
    body = json.dumps({"error": {"message": "no /opt/models/x.bin for POST /v1/chat/completions, 1/2 of a/b"}}).encode()
    response = Guarded(answering(400, body, [(b"content-length", str(len(body)).encode())])).post()
    assert message_of(response) == "no <path> for POST /v1/chat/completions, 1/2 of a/b"
    assert message_of(Guarded(answering(400, error_body(400, "no /srv/modèles/x: sorry"))).post()) == "no <path>: sorry"
    for path in ("/runs/lr=1e-3,seed=1/policy", "/data/a(1)/b", "/home/é/ü.py", "/a/b/", "/x/{y}/z"):
        assert scrub(f"in {path}, (see {path}): {path}:3:1, '{path}' {path}") == (
            "in <path>, (see <path>): <path>:3:1, '<path>' <path>"
        )
    assert scrub('see https://example.org/a/b and File "/usr/lib/python3/x.py"') == (
        'see https://example.org/a/b and File "<path>"'
    )


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"\xff", b'{"a": "\\ud800"}', b'{"\\uDFFF": 1}', b'{"a": "\\ud800", ' + b"[" * 9000, b" "]
)
def test_bodies_when_no_route_can_take_them_are_refused(body):
    assert Guarded(echo).post(content=body).status_code == 400


@pytest.mark.parametrize("body", [b"", b'{"a": "\\ud83d\\ude00"}', b' {"a": "\\\\ud800"}', '{"é": 1}'.encode(), b"{"])
def test_bodies_when_odd_but_valid_pass(body):
    assert Guarded(echo).post(content=body).content == body


def test_health_when_asked_for_without_a_key_is_open_and_nothing_else(tmp_path):
    from cudal1_ray.serving.access.keys import KeyFile

    key = KeyFile(tmp_path / "keys.json").add("alice")
    guarded = Guarded(answering(), keys_file=str(tmp_path / "keys.json"), metrics_need_key=True)
    assert guarded.post("/healthz").status_code == guarded.post("/health").status_code == 200
    for path in ("/metrics", "/v1/models", "/healthz/", "/health/x", "/healthz/../v1/models", "//healthz", "/HEALTHZ"):
        refused = guarded.post(path)
        assert (refused.status_code, refused.headers.get("www-authenticate")) == (401, "Bearer"), path
    for value in (f"Bearer {key}", f"bearer  {key} "):
        assert guarded.post(headers={"authorization": value}).status_code == 200
    for value in ("Bearer", "Bearer ", f"Basic {key}", key, "Bearer \xff", f"Bearer {key[:-1]}"):
        assert guarded.post(headers={"authorization": value.encode("latin-1")}).status_code == 401, value


def test_requests_when_counted_are_counted_by_route():
    guarded = Guarded(answering(201))
    for path in ("/v1/completions", "/v1/optimize/abc/events", "/v1/evaluate", "/wp-admin", "/v1/completionsx"):
        guarded.post(path)
    page = guarded.metrics.page()[0].decode()
    for route, count in (("/v1/completions", 1), ("/v1/optimize", 1), ("/v1/evaluate", 1), ("other", 2)):
        assert f'cudal1_requests_total{{route="{route}",status="201"}} {count}.0' in page
    assert "wp-admin" not in page


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.8.9.10", "[::1]:80", "localhost."]
)
def test_server_when_it_has_no_keys_answers_this_machine(host):
    assert Guarded(answering()).post(headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "localhost:80:90", "a@localhost"]
)
def test_server_when_it_has_no_keys_refuses_names_that_were_made_to_lead_here(host, tmp_path):
    """DNS rebinding: the page of another site asks its own name, which resolves to 127.0.0.1 by now."""
    guarded = Guarded(answering())
    assert guarded.post("/healthz", headers={"host": host}).status_code == 421
    assert guarded.post(headers={"host": host}).status_code == 421
    with_keys = Guarded(answering(), keys_file=str(tmp_path / "keys.json"))
    assert with_keys.post("/healthz", headers={"host": host}).status_code == 200


def test_server_when_it_has_no_keys_lets_pages_of_other_sites_change_nothing():
    guarded = Guarded(answering())
    for origin in ("https://evil.example", "null", "http://localhost:3000", "http://localhost.evil.example"):
        for method in ("POST", "DELETE"):
            assert guarded.post(headers={"origin": origin}, method=method).status_code == 403
        assert guarded.post(headers={"origin": origin}, method="GET", content=None).status_code == 200
    assert guarded.post(headers={"origin": "http://localhost"}).status_code == 200


@pytest.mark.parametrize(
    "encoding, status", [("gzip", 415), ("br, gzip", 415), ("x" * 5000, 415), ("identity", 200), ("", 200)]
)
def test_bodies_when_compressed_are_not_unpacked(encoding, status):
    assert Guarded(answering()).post(headers={"content-encoding": encoding}).status_code == status


def test_keys_when_a_request_has_two_are_none(tmp_path):
    from cudal1_ray.serving.access.keys import KeyFile

    key = KeyFile(tmp_path / "keys.json").add("alice")
    guarded = Guarded(answering(), keys_file=str(tmp_path / "keys.json"))
    headers = [("authorization", f"Bearer {key}"), ("authorization", "Bearer other")]
    assert guarded.post(headers=headers).status_code == 401


def test_open_paths_when_asked_for_are_open_and_nothing_beside_them_is(tmp_path):
    from cudal1_ray.serving.access.keys import KeyFile

    KeyFile(tmp_path / "keys.json").add("alice")
    guarded = Guarded(answering(), open_paths=("/", "/static/"), keys_file=str(tmp_path / "keys.json"))
    for path in ("/", "/static/a.js"):
        assert guarded.post(path).status_code == 200, path
    for path in ("/static", "/staticx", "/static/%2e%2e/v1/models", "/v1/models", "/x/static/a.js"):
        assert guarded.post(path).status_code == 401, path


def test_route_when_it_sets_headers_may_choose_what_a_browser_loads_only():
    chosen = [(b"Content-Security-Policy", b"default-src 'self'"), (b"x-frame-options", b"ALLOWALL")]
    headers = Guarded(answering(headers=chosen)).post().headers
    assert headers.get_list("content-security-policy") == ["default-src 'self'"]
    assert headers.get_list("x-frame-options") == ["DENY"] and headers["cache-control"] == "no-store"


@pytest.mark.parametrize("length", ["99999999999999999999999999", "1" * 5000, "1025"])
def test_length_when_stated_as_too_large_is_believed(length):
    assert Guarded(echo, max_body_kib=1).post(headers={"content-length": length}, content=b"{}").status_code == 413
