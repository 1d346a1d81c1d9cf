"""The guard around small applications that do what an application may do wrong."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from prometheus_client import CollectorRegistry

from cudal1_ray.serving.admission import Admission
from cudal1_ray.serving.config import SecurityConfig
from cudal1_ray.serving.guard import HEADERS, Guard, scrub
from cudal1_ray.serving.metrics import RequestMetrics


class LocalKeeper:
    def __init__(self, config):
        self.admission = Admission(config)

    async def ask(self, digest):
        return self.admission.ask(digest, 0.0)

    async def release(self, lease):
        self.admission.release(lease)


class Guarded:
    """An application behind a guard, and what it was asked."""

    def __init__(self, app, **fields):
        config = SecurityConfig(**fields)
        self.keeper, self.metrics = LocalKeeper(config), RequestMetrics(CollectorRegistry())
        self.guard = Guard(app, config, self.keeper, self.metrics)

    def post(self, path="/v1/completions", content=b"{}", headers=None) -> httpx.Response:
        async def ask():
            transport = httpx.ASGITransport(self.guard)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.post(path, content=content, headers=headers)

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


def test_every_answer_carries_the_security_headers():
    for guarded in (Guarded(answering()), Guarded(answering(404)), Guarded(echo, max_body_kib=1)):
        for content in (b"{}", b"x" * 5000):
            response = guarded.post(content=content)
            assert {name.decode(): value.decode() for name, value in HEADERS}.items() <= dict(response.headers).items()


def test_a_body_passes_whole_and_one_too_large_is_refused_whether_it_says_so_or_not():
    guarded = Guarded(echo, max_body_kib=1)
    assert guarded.post(content=b"{" * 1024).content == b"{" * 1024
    assert guarded.post(content=b"a" * 1025).status_code == 413

    async def parts():
        for _ in range(3):
            yield b"a" * 512

    assert guarded.post(content=parts()).status_code == 413
    assert guarded.keeper.admission.under_way(0.0) == 0


def test_a_body_that_never_arrives_is_given_up():
    async def ask():
        sent = []

        async def receive():
            await asyncio.sleep(60)

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "path": "/v1/completions", "headers": []}
        await Guarded(echo, body_timeout_s=0.01).guard(scope, receive, send)
        return sent

    start, body = asyncio.run(ask())
    assert start["status"] == 408 and b"did not arrive" in body["body"]


@pytest.mark.parametrize("started", [False, True])
def test_an_answer_that_takes_too_long_is_broken_off(started):
    async def app(scope, receive, send):
        if started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"some", "more_body": True})
        await asyncio.sleep(60)

    guarded = Guarded(app, request_timeout_s=0.01)
    response = guarded.post()
    assert response.status_code == (200 if started else 504)
    assert response.content == b"some" if started else "no answer" in message_of(response)
    assert guarded.keeper.admission.under_way(0.0) == 0


def test_a_fault_inside_is_a_number_for_the_caller_and_a_story_in_the_log(caplog):
    async def app(scope, receive, send):
        raise RuntimeError("secret=/home/somebody/key")

    response = Guarded(app).post()
    assert response.status_code == 500 and "secret" not in response.text and "home" not in response.text
    number = message_of(response).split()[2].rstrip(";")
    assert number in caplog.text and "secret" in caplog.text


def test_errors_lose_paths_and_nothing_else():
    body = json.dumps({"error": {"message": "no /opt/models/x.bin for POST /v1/chat/completions, 1/2 of a/b"}}).encode()
    response = Guarded(answering(400, body, [(b"content-length", str(len(body)).encode())])).post()
    assert message_of(response) == "no <path> for POST /v1/chat/completions, 1/2 of a/b"
    assert scrub('see https://example.org/a/b and File "/usr/lib/python3/x.py"') == (
        'see https://example.org/a/b and File "<path>"'
    )


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"\xff", b'{"a": "\\ud800"}', b'{"\\uDFFF": 1}', b'{"a": "\\ud800", ' + b"[" * 9000, b" "]
)
def test_bodies_that_no_route_can_take_are_refused_before_any(body):
    assert Guarded(echo).post(content=body).status_code == 400


@pytest.mark.parametrize("body", [b"", b'{"a": "\\ud83d\\ude00"}', b' {"a": "\\\\ud800"}', '{"é": 1}'.encode(), b"{"])
def test_other_bodies_pass(body):
    assert Guarded(echo).post(content=body).content == body


def test_only_health_is_open_to_everybody(tmp_path):
    from cudal1_ray.serving.keys import KeyFile

    key = KeyFile(tmp_path / "keys.json").add("alice")
    guarded = Guarded(answering(), keys_file=str(tmp_path / "keys.json"), metrics_need_key=True)
    assert guarded.post("/healthz").status_code == 200
    for path in ("/metrics", "/v1/models", "/healthz/", "/healthz/../v1/models", "//healthz", "/HEALTHZ"):
        refused = guarded.post(path)
        assert (refused.status_code, refused.headers.get("www-authenticate")) == (401, "Bearer"), path
    for value in (f"Bearer {key}", f"bearer  {key} "):
        assert guarded.post(headers={"authorization": value}).status_code == 200
    for value in ("Bearer", "Bearer ", f"Basic {key}", key, "Bearer \xff", f"Bearer {key[:-1]}"):
        assert guarded.post(headers={"authorization": value.encode("latin-1")}).status_code == 401, value


def test_requests_are_counted_by_route_not_by_whatever_a_caller_asks_for():
    guarded = Guarded(answering(201))
    for path in ("/v1/completions", "/v1/optimize/abc/events", "/wp-admin", "/v1/completionsx"):
        guarded.post(path)
    page = guarded.metrics.page()[0].decode()
    for route, count in (("/v1/completions", 1), ("/v1/optimize", 1), ("other", 2)):
        assert f'cudal1_requests_total{{route="{route}",status="201"}} {count}.0' in page
    assert "wp-admin" not in page
